"""Launchers of CUDA kernels: a host function for each access and index width, and the C entry."""

from __future__ import annotations

from ..ir.kernel import Kernel
from .c import STORAGE
from .layout import call, folded, head


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
    elems = kernel.threads * kernel.vectors
    block = f"{elems} * kLanes" if vector else f"{elems}"
    casts = [
        f"static_cast<{'' if b.written else 'const '}{STORAGE[b.dtype]}*>({b.name})"
        for b in kernel.buffers
    ]
    casts += [f"Index({name})" for name in (*operands[len(kernel.buffers) :], "num_elems")]
    launch = f"<<<blocks, {kernel.threads}, 0, stream>>>"
    name = f"{kernel.name}_{kernel.variant}"
    lines = [
        f"template <{template}>",
        head(
            f"static void {name}_launch",
            [*params, "int64_t num_elems", "cudaStream_t stream"],
            " {",
        ),
        f"  constexpr int64_t kBlock = {block};",
        "  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;",
        call(f"{name}_kernel<{arguments}>{launch}", casts, 2),
        "}",
    ]
    return "\n".join(lines)


def _of_width(name: str, lanes: str) -> str:
    return f"narrow ? {name}<{lanes}uint32_t> : {name}<{lanes}uint64_t>"


def _pointers(kernel: Kernel) -> list[str]:
    return [f"{'' if b.written else 'const '}void* {b.name}" for b in kernel.buffers]


def _entry(kernel: Kernel, operands: list[str], vector: bool) -> str:
    name = f"{kernel.name}_{kernel.variant}"
    params = [*_pointers(kernel), *(f"int64_t {extent.name}" for extent in kernel.extents)]
    params += ["int64_t num_elems", "int64_t max_offset", "int aligned", "void* stream"]
    choice = [f"  auto launch = {_of_width(f'{name}_launch', '1, ' if vector else '')};"]
    if vector:
        packets = _of_width(f"{name}_launch", f"{kernel.lanes}, ")
        choice.append(f"  if (aligned) launch = {packets};")
    lines = [
        head(f'extern "C" int {name}', params, " {"),
        "  // 32-bit positions must not wrap round in the last, partial block.",
        "  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);",
        *map(folded, choice),
        call("launch", [*operands, "num_elems", "static_cast<cudaStream_t>(stream)"], 2),
        "  return int(cudaGetLastError());",
        "}",
    ]
    return "\n".join(lines)
