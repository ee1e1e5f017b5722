"""Kernels as CUDA C++: an element function, what a thread does with it, kernels, launchers.

The contiguous kernel moves packets: a thread handles kLanes neighbouring elements by 16-byte
accesses, and only the last block has to look where the elements end. Where it goes through rows, it
handles the same packet of each. The strided kernel handles one element a thread. Launchers are
plain C, so that no torch header is ever read by nvcc:
    int <group>_<variant>(const void* operand..., void* result..., int64_t extent...,
                          int64_t num_elems, int64_t max_offset, int aligned, void* stream)
`max_offset` is the largest element offset that any operand reaches: it decides between 32- and
64-bit indices. `aligned` says that every pointer allows 16-byte accesses. The result is a
cudaError_t. Matrix products and attention have entries of their own, convolutions are
functors of a skeleton: see contraction.py, attention.py and convolution.py in products/.
"""

from __future__ import annotations

from ...device import pieces
from ...device.used import used
from ...ir.kernels.convolution import Convolving
from ...ir.kernels.kernel import Attending, Contraction, Kernel, Pointwise
from ...ir.kernels.reduction import Lowered, Reduction, Scan
from ..c import dtypes_of, storage_pieces
from ..element import element_text, pieces_called, pieces_of, place_pieces, title
from ..layout import call, folded, head, indented
from ..running_statistics import KERNEL
from .entry import ByLayout, entry, entry_pieces
from .launch import launcher
from .packet import element_body, names, packet_function, packet_name, parameters, turned_body
from .pointwise import functor_pieces, functor_text, is_functor
from .products.attention import attention_pieces, attention_text
from .products.contraction import contraction_pieces, contraction_text
from .products.convolution import convolution_pieces, convolution_text
from .reduce_rows import is_row_functor, row_functor_pieces, row_functor_text
from .reduction import reduction_pieces, reduction_text
from .scan import scan_pieces, scan_text

VECTOR_PIECES = {"Vector", "load_vector", "store_vector"}


def cuda_text(kernels: tuple[Lowered, ...]) -> str:
    """The whole `.cu` text."""
    device, texts = cuda_texts(kernels)
    return "\n".join([device, *texts])


def cuda_texts(kernels: tuple[Lowered, ...], tracks: bool = False) -> tuple[str, list[str]]:
    """The device functions used, by what moves running statistics, too, where it `tracks`; and each
    group's kernels.
    """
    functors = all(map(runs_by_skeleton, kernels))
    needed = set() if functors else set(VECTOR_PIECES)
    for lowered in kernels:
        needed |= place_pieces(lowered.kernels)
        for kernel in lowered.kernels:
            needed |= pieces_of(kernel.element, "cuda") | storage_pieces(dtypes_of(kernel))
        if isinstance(lowered, Attending):
            needed |= attention_pieces(lowered)
        if isinstance(lowered, Contraction):
            needed |= contraction_pieces(lowered)
        if isinstance(lowered, Convolving):
            needed |= convolution_pieces(lowered)
        if isinstance(lowered, Reduction):
            by_skeleton = is_row_functor(lowered)
            needed |= row_functor_pieces(lowered) if by_skeleton else reduction_pieces(lowered)
        if isinstance(lowered, Scan):
            needed |= scan_pieces(lowered)
        if isinstance(lowered, Pointwise) and is_functor(lowered):
            needed |= functor_pieces(lowered)
        if isinstance(lowered, ByLayout) and not runs_by_skeleton(lowered):
            needed |= entry_pieces(lowered)
    texts = [_text(lowered) for lowered in kernels]
    needed |= {"move_statistics"} if tracks else set()
    needed |= {"difference"} & set().union(*map(pieces_called, texts))
    device = used(pieces(sorted(needed)), [*texts, KERNEL.text] if tracks else texts)
    return "\n".join(["#include <cuda_runtime.h>", *device]), texts


def runs_by_skeleton(lowered: Lowered) -> bool:
    """Whether a group is a functor, whose operator hands over a table of tensors."""
    if isinstance(lowered, Reduction):
        return is_row_functor(lowered)
    return isinstance(lowered, Convolving) or (
        isinstance(lowered, Pointwise) and is_functor(lowered)
    )


def _text(lowered: Lowered) -> str:
    if isinstance(lowered, Attending):
        return attention_text(lowered)
    if isinstance(lowered, Contraction):
        return contraction_text(lowered)
    if isinstance(lowered, Convolving):
        return convolution_text(lowered)
    assert isinstance(lowered, ByLayout), "row blocks run on the CPU"
    if isinstance(lowered, Reduction) and is_row_functor(lowered):
        return row_functor_text(lowered)
    if isinstance(lowered, Pointwise) and is_functor(lowered):
        return functor_text(lowered)
    return f"{_text_of_layouts(lowered)}\n{entry(lowered)}\n"


def _text_of_layouts(lowered: ByLayout) -> str:
    if isinstance(lowered, Reduction):
        return reduction_text(lowered)
    return scan_text(lowered) if isinstance(lowered, Scan) else _group_text(lowered)


def _group_text(fused: Pointwise) -> str:
    element = element_text(fused.contiguous.element, "cuda")
    parts = [f"{title(fused.contiguous, fused.buffers)}\n\n{element}"]
    for kernel in (fused.contiguous, fused.strided):
        if kernel.turned:
            parts.append(_turned_kernel(kernel))
        else:
            parts += _packet_kernel(kernel) if kernel.lanes > 1 else [_element_kernel(kernel)]
        parts.append(launcher(kernel, names(kernel)))
    return "\n\n".join(parts) + "\n"


# --- packets ---


def _packet_kernel(kernel: Kernel) -> list[str]:
    """The function that handles one packet, and the kernel that calls it."""
    packet = packet_name(kernel)
    step = f"{kernel.threads} * kLanes"
    block = step if kernel.vectors == 1 else f"{step} * {kernel.vectors}"
    body = [
        f"  const Index first = Index(blockIdx.x) * ({block});",
        "  const Index begin = first + Index(threadIdx.x) * kLanes;",
        f"  if (num_elems - first >= {block}) {{  // all blocks but the last",
        *_full_block(kernel, packet, step),
        "    return;",
        "  }",
        *_last_block(kernel, packet, step),
    ]
    return [packet_function(kernel), "\n".join([*_kernel_head(kernel), *body, "}"])]


def _kernel_head(kernel: Kernel) -> list[str]:
    template = "int kLanes, typename Index" if kernel.lanes > 1 else "typename Index"
    bounds = f"__launch_bounds__({kernel.threads})"
    start = f"__global__ void {bounds} {kernel.name}_{kernel.variant}_kernel"
    counts = ["Index num_rows", "Index num_positions"] if kernel.turned else ["Index num_elems"]
    return [f"template <{template}>", head(start, [*parameters(kernel), *counts], " {")]


def _full_block(kernel: Kernel, packet: str, step: str) -> list[str]:
    if kernel.vectors == 1:
        return [call(f"{packet}<kLanes>", [*names(kernel), "begin"], 4)]
    return [
        "#pragma unroll",
        f"    for (int k = 0; k < {kernel.vectors}; ++k) {{",
        call(f"{packet}<kLanes>", [*names(kernel), f"begin + k * ({step})"], 6),
        "    }",
    ]


def _last_block(kernel: Kernel, packet: str, step: str) -> list[str]:
    """Element by element: a packet would reach over the end."""
    if kernel.vectors == 1:
        return [
            "  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {",
            call(f"{packet}<1>", [*names(kernel), "at"], 4),
            "  }",
        ]
    return [
        f"  for (Index next = begin; next < num_elems; next += {step}) {{",
        "    for (Index at = next; at < num_elems && at < next + kLanes; ++at) {",
        call(f"{packet}<1>", [*names(kernel), "at"], 6),
        "    }",
        "  }",
    ]


# --- packets of every row ---


def _turned_kernel(kernel: Kernel) -> str:
    """The kernel whose threads go through rows, with what is the same in all of them at hand."""
    lines = [
        f"  const Index thread = Index(blockIdx.x) * {kernel.threads} + threadIdx.x;",
        "  const Index position = thread * kLanes;",
        "  if (position >= num_positions) return;",
        *map(folded, indented(turned_body(kernel), 2)),
        "}",
    ]
    return "\n".join([*_kernel_head(kernel), *lines])


# --- single elements ---


def _element_kernel(kernel: Kernel) -> str:
    """One thread an element, at any strides."""
    lines = [
        f"  const Index at = Index(blockIdx.x) * {kernel.threads} + threadIdx.x;",
        "  if (at >= num_elems) return;",
        *map(folded, indented(element_body(kernel), 2)),
        "}",
    ]
    return "\n".join([*_kernel_head(kernel), *lines])
