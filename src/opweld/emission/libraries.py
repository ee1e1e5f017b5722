"""The texts of the kernels in the emitted file."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.kernels.source import Libraries, LibraryText


def raw_string(text: str) -> str:
    """A string literal that shows `text` line by line, whatever quotes are in it."""
    for quotes in ('"""', "'''"):
        if quotes not in text and not text.endswith((quotes[0], "\\")):
            return f"r{quotes}{text}{quotes}"
    return '"""' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'


def kernels_text(libraries: Libraries) -> str:
    """The texts that are about the model: of each library its kernels and its operators."""
    texts = []
    for index, library in enumerate(libraries.each):
        kernels, main = _names(libraries, index)
        calls = "What PyTorch calls: makes results and runs kernels on them."
        texts.append((_said_of(libraries, library), kernels, library.kernels))
        texts.append((calls, main, library.host))
    return _assigned(texts)


def shared_text(libraries: Libraries) -> str:
    """The texts that stand before those of each library when it is compiled."""
    said = {
        "_DEVICE": "What kernels use: op, as far as they do.",
        "_HOST": "What operators use: host, as far as they do.",
    }
    return _assigned((said[name], name, text) for name, text in _shared(libraries).items())


def _assigned(texts: Iterable[tuple[str, str, str]]) -> str:
    return "\n\n".join(f"# {said}\n{name} = {raw_string(text)}" for said, name, text in texts)


def _shared(libraries: Libraries) -> dict[str, str]:
    texts = {"_DEVICE": libraries.device, "_HOST": libraries.host}
    return {name: text for name, text in texts.items() if text.strip()}


def _said_of(libraries: Libraries, library: LibraryText) -> str:
    """What stands in a library, and where the reader finds what it stands on."""
    first, last = library.names[0], library.names[-1]
    if len(libraries.each) == 1:
        named = "The kernels"
    else:
        named = f"Kernel {first}" if first == last else f"Kernels {first} to {last}"
    return f"{named}; op:: is in _DEVICE, below." if libraries.device.strip() else f"{named}."


def listed(libraries: Libraries) -> list[str]:
    """For each library its first operator and what PyTorch's builder is given of it, as text."""
    return [
        f'("{each.names[0]}", dict({_sources(libraries, index)}))'
        for index, each in enumerate(libraries.each)
    ]


def _sources(libraries: Libraries, index: int) -> str:
    kernels, main = _names(libraries, index)
    device, host = ([n] if n in _shared(libraries) else [] for n in ("_DEVICE", "_HOST"))
    cpp, cuda = [*host, main], [*device, kernels]
    if libraries.language == "cuda":
        return f"cpp_sources=[{', '.join(cpp)}], cuda_sources=[{', '.join(cuda)}]"
    return f"cpp_sources=[{', '.join([*cuda, *cpp])}]"


def _names(libraries: Libraries, index: int) -> tuple[str, str]:
    """What the texts of a library are called."""
    number = f"_{index + 1}" if index else ""
    return f"{'_CUDA' if libraries.language == 'cuda' else '_CPU'}{number}", f"_MAIN{number}"
