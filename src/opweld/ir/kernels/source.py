"""Texts that are compiled: the kernels of one emitted file, and the libraries that it builds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

# The operator that moves all running statistics of a forward, and its kernel.
TRACK = "opweld_track"


@dataclass(frozen=True, slots=True)
class KernelText:
    """The text of a group's kernels and launchers; `seconds` is about how long compiling it takes,
    0 where that does not matter.
    """

    group: str
    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Source:
    """Text of all kernels: `language` is "cuda" or "c++"; `device` is what they have in common;
    `entry_points` are their launchers.
    """

    name: str
    language: str
    device: str
    kernels: tuple[KernelText, ...]
    entry_points: tuple[str, ...]

    @property
    def text(self) -> str:
        """One translation unit with all."""
        return "\n".join([*([self.device] if self.device else []), self.of(None)])

    def of(self, groups: Collection[str] | None) -> str:
        """The kernels of some groups, or of all."""
        return "\n".join(
            each.text for each in self.kernels if groups is None or each.group in groups
        )


@dataclass(frozen=True, slots=True)
class LibraryText:
    """What becomes one library: some kernels, and the operators that call them, by their names."""

    names: tuple[str, ...]
    kernels: str
    host: str


@dataclass(frozen=True, slots=True)
class Libraries:
    """The libraries of one emitted file. Each is compiled behind what it uses of the device library
    and of the host code that all files have in common: `device` and `host`, which may be empty.
    """

    language: str
    device: str
    host: str
    each: tuple[LibraryText, ...]


NO_LIBRARIES = Libraries("", "", "", ())
