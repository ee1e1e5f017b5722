"""Which kernels of a file are compiled together: several texts take many cores at once."""

from __future__ import annotations

from dataclasses import replace

from ..ir.kernels.source import NO_LIBRARIES, Libraries, LibraryText, Source
from .host.texts import Host

# About as long as what every text costs by itself, headers and host code, measured as the seconds
# of kernels are.
_SECONDS = 6.0
# Not worth a library.
_LEAST_SECONDS = 3.0


def libraries(source: Source, host: Host) -> Libraries:
    """The kernels and the host code of one file as libraries of about `_SECONDS` each."""
    if not source.kernels:
        return replace(NO_LIBRARIES, language=source.language)
    groups = _divided([(each.group, each.seconds) for each in source.kernels])
    # The only library has all operators: that of row blocks is not called as their tail's kernel.
    chosen = groups if len(groups) > 1 else [None]
    each = tuple(
        LibraryText(tuple(names), source.of(some), host.of(some))
        for names, some in zip(groups, chosen, strict=True)
    )
    return Libraries(source.language, source.device, host.shared, each)


def _divided(seconds: list[tuple[str, float]]) -> list[list[str]]:
    """Names in their order; a new list begins where one would be too long, if neither is little."""
    lists: list[list[str]] = [[]]
    filled, left = 0.0, sum(each for _, each in seconds)
    for name, each in seconds:
        little = not lists[-1] or min(filled, left) < _LEAST_SECONDS
        if filled + each > _SECONDS and not little:
            lists.append([])
            filled = 0.0
        lists[-1].append(name)
        filled += each
        left -= each
    return lists
