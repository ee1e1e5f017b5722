"""The texts of the kernels in the emitted file."""

from __future__ import annotations

from ..ir.kernels.source import Libraries, LibraryText


def raw_string(text: str) -> str:
    """A string literal that shows `text` line by line, whatever quotes are in it."""
    for quotes in ('"""', "'''"):
        if quotes not in text and not text.endswith((quotes[0], "\\")):
            return f"r{quotes}{text}{quotes}"
    return '"""' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'


def sources_text(libraries: Libraries) -> str:
    """The texts of all libraries, before them what they have in common."""
    texts = []
    if len(libraries.each) > 1:
        texts.append(("What all kernels use.", "_DEVICE", libraries.device))
        texts.append(("What all operators use.", "_HOST", libraries.host))
    for index, library in enumerate(libraries.each):
        kernels, main = _names(libraries, index)
        calls = "What PyTorch calls: makes results and runs kernels on them."
        texts.append((_said_of(libraries, library), kernels, library.kernels))
        texts.append((calls, main, library.host))
    return "\n\n".join(f"# {said}\n{name} = {raw_string(text)}" for said, name, text in texts)


def _said_of(libraries: Libraries, library: LibraryText) -> str:
    first, last = library.names[0], library.names[-1]
    if len(libraries.each) == 1:
        return "The kernels."
    return f"Kernel {first}." if first == last else f"Kernels {first} to {last}."


def listed(libraries: Libraries) -> list[str]:
    """For each library its first operator and what PyTorch's builder is given of it, as text."""
    return [
        f'("{each.names[0]}", dict({_sources(libraries, index)}))'
        for index, each in enumerate(libraries.each)
    ]


def _sources(libraries: Libraries, index: int) -> str:
    kernels, main = _names(libraries, index)
    several = len(libraries.each) > 1
    device, host = (["_DEVICE"], ["_HOST"]) if several else ([], [])
    cpp, cuda = [*host, main], [*device, kernels]
    if libraries.language == "cuda":
        return f"cpp_sources=[{', '.join(cpp)}], cuda_sources=[{', '.join(cuda)}]"
    return f"cpp_sources=[{', '.join([*cuda, *cpp])}]"


def _names(libraries: Libraries, index: int) -> tuple[str, str]:
    """What the texts of a library are called."""
    number = f"_{index + 1}" if index else ""
    return f"{'_CUDA' if libraries.language == 'cuda' else '_CPU'}{number}", f"_MAIN{number}"
