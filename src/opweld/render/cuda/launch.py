"""Launchers of CUDA kernels: a host function for each access and index width, and the C entry."""

from __future__ import annotations

from ...ir.expr import product
from ...ir.kernels.kernel import Kernel
from ..c import STORAGE, index_text
from ..layout import call, folded, head


def launcher(kernel: Kernel, operands: list[str]) -> str:
    """The template that launches, and the entry point that chooses among its instances.

    `operands` are the arguments of the kernel before the number of elements.
    """
    vector = kernel.lanes > 1
    return f"{_template(kernel, operands, vector)}\n\n{_entry(kernel, operands, vector)}"


def _template(kernel: Kernel, operands: list[str], vector: bool) -> str:
    template = "int kLanes, typename Index" if vector else "typename Index"
    arguments = "kLanes, Index" if vector else "Index"
    params = [*_pointers(kernel), *(f"int64_t {name}" for name in operands[len(kernel.buffers) :])]
    elems = kernel.threads * (1 if kernel.turned else kernel.vectors)
    block = f"{elems} * kLanes" if vector else f"{elems}"
    casts = [
        f"static_cast<{'' if b.written else 'const '}{STORAGE[b.dtype]}*>({b.name})"
        for b in kernel.buffers
    ]
    counts = _COUNTS if kernel.turned else ("num_elems",)
    casts += [f"Index({name})" for name in (*operands[len(kernel.buffers) :], *counts)]
    launch = f"<<<blocks, {kernel.threads}, 0, stream>>>"
    name = f"{kernel.name}_{kernel.variant}"
    lines = [
        f"template <{template}>",
        head(
            f"static void {name}_launch",
            [*params, *(f"int64_t {name}" for name in counts), "cudaStream_t stream"],
            " {",
        ),
        f"  constexpr int64_t kBlock = {block};",
        f"  const unsigned int blocks = ({counts[-1]} + kBlock - 1) / kBlock;",
        call(f"{name}_kernel<{arguments}>{launch}", casts, 2),
        "}",
    ]
    return "\n".join(lines)


# Those of a kernel whose threads go through rows.
_COUNTS = ("num_rows", "num_positions")


def _of_width(name: str, lanes: str) -> str:
    return f"narrow ? {name}<{lanes}uint32_t> : {name}<{lanes}uint64_t>"


def _pointers(kernel: Kernel) -> list[str]:
    return [f"{'' if b.written else 'const '}void* {b.name}" for b in kernel.buffers]


def _entry(kernel: Kernel, operands: list[str], vector: bool) -> str:
    name = f"{kernel.name}_{kernel.variant}"
    params = [*_pointers(kernel), *(f"int64_t {extent.name}" for extent in kernel.extents)]
    params += ["int64_t num_elems", "int64_t max_offset", "int aligned", "void* stream"]
    counts = _COUNTS if kernel.turned else ("num_elems",)
    choice = [f"  auto launch = {_of_width(f'{name}_launch', '1, ' if vector else '')};"]
    if vector:
        packets = _of_width(f"{name}_launch", f"{kernel.lanes}, ")
        choice.append(f"  if (aligned) launch = {packets};")
    lines = [
        head(f"static int {name}", params, " {"),
        "  // 32-bit positions must not wrap round in the last, partial block.",
        "  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);",
        *(_count_lines(kernel) if kernel.turned else []),
        *map(folded, choice),
        call("launch", [*operands, *counts, "static_cast<cudaStream_t>(stream)"], 2),
        "  return int(cudaGetLastError());",
        "}",
    ]
    return "\n".join(lines)


def _count_lines(kernel: Kernel) -> list[str]:
    rows = index_text(product(loop.extent for loop in kernel.loops[: kernel.turned]), str)
    return [
        f"  const int64_t num_rows = {rows};",
        "  const int64_t num_positions = num_elems / num_rows;",
    ]
