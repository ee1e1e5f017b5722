"""Kernels -> Sources: CUDA or C++ text of all kernels of one emitted file."""

from __future__ import annotations

from ..ir.kernels.convolution import Convolving
from ..ir.kernels.kernel import Attending, Contraction, Pointwise
from ..ir.kernels.reduction import Lowered, Reduction, Scan
from ..ir.kernels.source import KernelText, Source
from .cpp.texts import cpp_texts
from .cuda.entry import Tabled, takes_scratch
from .cuda.texts import cuda_texts
from .running_statistics import KERNEL


def render(name: str, kernels: tuple[Lowered, ...], language: str, tracks: bool = False) -> Source:
    """Every kernel with its launchers; `language` is "cuda" or "c++". On CUDA it may be followed by
    what moves running statistics.
    """
    cuda = language == "cuda"
    device, texts = cuda_texts(kernels, tracks) if cuda else cpp_texts(kernels)
    pairs = zip(kernels, texts, strict=True)
    made = tuple(
        KernelText(lowered.group, text, _seconds(lowered, text) if cuda else 0.0)
        for lowered, text in pairs
    )
    made += (KERNEL,) if tracks else ()
    entry_points = tuple(name for each in kernels for name in _entry_points(each, language))
    entry_points += (f"{KERNEL.group}_launch",) if tracks else ()
    return Source(name, language, device, made, entry_points)


# What nvcc 13.0 takes for sm_90a on one core of an AMD EPYC, measured: by the length of a text, and
# beside that for what the device library makes of a matrix product or of attention.
_BYTES_A_SECOND = {Pointwise: 15_000, Reduction: 7_000, Scan: 7_000}
_WHOLE_SECONDS = {Contraction: 10.0, Convolving: 8.0, Attending: 1.0}


def _seconds(lowered: Lowered, text: str) -> float:
    kind = type(lowered)
    return len(text) / _BYTES_A_SECOND.get(kind, 7_000) + _WHOLE_SECONDS.get(kind, 0.0)


def _entry_points(lowered: Lowered, language: str) -> tuple[str, ...]:
    if isinstance(lowered, Attending):
        return tuple(f"{lowered.group}_{name}" for name in ("attend", "workspace"))
    if isinstance(lowered, Contraction):
        return tuple(f"{lowered.group}_{name}" for name in ("contract", "held", "workspace"))
    if language == "cuda" and isinstance(lowered, Tabled):
        scratch = (f"{lowered.group}_scratch",) if takes_scratch(lowered) else ()
        return (f"{lowered.group}_launch", *scratch)
    if isinstance(lowered, Reduction | Scan):
        return _of_rows(lowered)
    return tuple(f"{kernel.name}_{kernel.variant}" for kernel in lowered.kernels)


def _of_rows(reduction: Reduction | Scan) -> tuple[str, ...]:
    group = reduction.group
    variants = tuple(f"{group}_{folding.variant}" for folding in reduction.foldings)
    if not reduction.cut:
        return variants
    second = "scan" if isinstance(reduction, Scan) else "finish"
    parts = (f"{variant}_{part}" for variant in variants for part in ("fold", second))
    return (f"{group}_partial_bytes", *parts)
