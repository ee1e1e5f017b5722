"""Convolutions as CUDA C++: the epilogue as a functor, the entries that the host calls. In C:
    int64_t <group>_workspace(const void* convolution)   bytes of one call
    int <group>_convolve(const void* convolution, operands and results of the epilogue, their
                         integers, int64_t max_offset, int aligned, void* workspace, void* stream)
`convolution` is an op::Convolution. `max_offset` and `aligned` speak of what the epilogue touches;
the result is a cudaError_t.
"""

from __future__ import annotations

from ...ir.kernels.convolution import Convolving
from ..element import element_text, title
from ..layout import call, head
from .contraction import MODES, construction, epilogue_text


def convolution_pieces(convolving: Convolving) -> set[str]:
    """Names of the device library's pieces that its text uses."""
    narrow = {"wgmma_half_64_typed"} if convolving.columns == 64 else set[str]()
    return {"convolve", "WindowTiles", MODES[convolving.mode], *narrow}


def convolution_text(convolving: Convolving) -> str:
    """Everything of one convolution: element function, epilogue, its entries."""
    kernel = convolving.epilogue
    parts = [
        title(kernel, convolving.buffers),
        element_text(kernel.element, "cuda"),
        *epilogue_text(kernel),
        f"using {convolving.group}_form = {_form(convolving)};",
        _entries(convolving),
    ]
    return "\n\n".join(parts) + "\n"


def _form(convolving: Convolving) -> str:
    space = max(len(convolving.convolution.out), 2)  # one axis is two, of which one is 1
    return f"op::WindowTiles<op::{MODES[convolving.mode]}, {space}, {convolving.columns}>"


def _entries(convolving: Convolving) -> str:
    name, kernel = convolving.group, convolving.epilogue
    given = ["convolution", "workspace", "epilogue", "max_offset", "aligned", "stream"]
    lines = [
        head(f'extern "C" int64_t {name}_workspace', size_parameters(), " {"),
        f"  return op::convolution_bytes<{name}_form>(convolution);",
        "}",
        "",
        head(f'extern "C" int {name}_convolve', entry_parameters(convolving), " {"),
        construction("epilogue", kernel),
        call(f"return op::convolve<{name}_form>", given, 2),
        "}",
    ]
    return "\n".join(lines)


def size_parameters() -> list[str]:
    """The parameters of the entry that says how much workspace it takes, with their types."""
    return ["const void* convolution"]


def entry_parameters(convolving: Convolving) -> list[str]:
    """The parameters of the entry that makes the convolution."""
    return [
        "const void* convolution",
        *(f"{'' if b.written else 'const '}void* {b.name}" for b in convolving.touched),
        *(f"int64_t {extent.name}" for extent in convolving.extents),
        *("int64_t max_offset", "int aligned", "void* workspace", "void* stream"),
    ]
