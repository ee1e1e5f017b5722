"""The texts of the kernels in the emitted file, and the call that has them built and loaded."""

from __future__ import annotations

from ..device import CPP_FLAGS
from ..ir.original import Original
from ..ir.source import Libraries, LibraryText
from . import piece

# The oldest stable ABI that has all that the host code calls: PyTorch 2.10.
ABI_FLAG = "-DTORCH_TARGET_VERSION=0x020a000000000000"

_CUDA_FLAGS = (
    f'    extra_cflags=["-O2", "-DUSE_CUDA", "{ABI_FLAG}"],',
    '    extra_cuda_cflags=["-O3", *_architectures(_devices)],',
    '    extra_ldflags=["-Wl,-Bsymbolic"],',
)

_CPU_FLAGS = (
    "    extra_cflags=[",
    *(f'        "{flag}",' for flag in (*CPP_FLAGS, ABI_FLAG)),
    "    ],",
    '    extra_ldflags=["-Wl,-Bsymbolic", *_vector_library()],',
)


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
        calls = "What PyTorch calls: checks operands, makes results, chooses and runs a kernel."
        texts.append((_said_of(libraries, library), kernels, library.kernels))
        texts.append((calls, main, library.host))
    return "\n\n".join(f"# {said}\n{name} = {raw_string(text)}" for said, name, text in texts)


def _said_of(libraries: Libraries, library: LibraryText) -> str:
    first, last = library.names[0], library.names[-1]
    if len(libraries.each) == 1:
        return "The kernels."
    return f"Kernel {first}." if first == last else f"Kernels {first} to {last}."


def load_text(original: Original, libraries: Libraries) -> str:
    """Builds and loads the kernels; afterwards `_ops` and `_devices` are there."""
    stem = original.file.rpartition(".")[0] or original.file
    slug = "".join(c if c.isalnum() and c.isascii() else "_" for c in stem.lower())
    cuda = libraries.language == "cuda"
    devices = "_devices" if cuda else '(torch.device("cpu"),)'
    alone = len(libraries.each) == 1
    lines = [
        *(["_devices = _cuda_devices()"] if cuda else []),
        f"_ops, _devices = {'_load' if alone else '_load_all'}(",
        f'    "{slug}",',
        *(_the_only_one(libraries, devices) if alone else _listed(libraries, devices)),
        *(_CUDA_FLAGS if cuda else _CPU_FLAGS),
        ")",
    ]
    return "\n".join([piece("cuda" if cuda else "cpu").strip(), "", "", *lines])


def _the_only_one(libraries: Libraries, devices: str) -> list[str]:
    given = [f"    {kind}=[{', '.join(names)}]," for kind, names in _sources(libraries, 0)]
    return [f'    "{libraries.each[0].names[0]}",', f"    {devices},", *given]


def _listed(libraries: Libraries, devices: str) -> list[str]:
    lines = []
    for index, each in enumerate(libraries.each):
        given = [f"{kind}=[{', '.join(names)}]" for kind, names in _sources(libraries, index)]
        lines += ["        (", f'            "{each.names[0]}",']
        lines += [f"            dict({', '.join(given)}),", "        ),"]
    return [f"    {devices},", "    [", *lines, "    ],"]


def _sources(libraries: Libraries, index: int) -> list[tuple[str, list[str]]]:
    """What the builder is given of library `index`: the names of its texts."""
    kernels, main = _names(libraries, index)
    several = len(libraries.each) > 1
    device, host = (["_DEVICE"], ["_HOST"]) if several else ([], [])
    if libraries.language == "cuda":
        return [("cpp_sources", [*host, main]), ("cuda_sources", [*device, kernels])]
    return [("cpp_sources", [*device, kernels, *host, main])]


def _names(libraries: Libraries, index: int) -> tuple[str, str]:
    """What the texts of a library are called."""
    number = f"_{index + 1}" if index else ""
    return f"{'_CUDA' if libraries.language == 'cuda' else '_CPU'}{number}", f"_MAIN{number}"
