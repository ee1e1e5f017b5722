"""Kernels -> Sources: CUDA or C++ text of all kernels of one emitted file."""

from __future__ import annotations

import hashlib

from ..ir.kernel import Attending, Contraction, Source
from ..ir.reduction import Lowered, Reduction, Scan
from .cpp import cpp_text
from .cuda import cuda_text


def render(name: str, kernels: tuple[Lowered, ...], language: str) -> Source:
    """One translation unit with every kernel and its launchers; `language` is "cuda" or "c++"."""
    text = {"cuda": cuda_text, "c++": cpp_text}[language](kernels)
    entry_points = tuple(name for each in kernels for name in _entry_points(each, language))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Source(name, language, text, entry_points, digest)


def _entry_points(lowered: Lowered, language: str) -> tuple[str, ...]:
    if isinstance(lowered, Attending):
        return tuple(f"{lowered.group}_{name}" for name in ("attend", "workspace"))
    if isinstance(lowered, Contraction):
        return tuple(f"{lowered.group}_{name}" for name in ("contract", "held", "workspace"))
    if isinstance(lowered, Reduction | Scan):
        return _of_rows(lowered, language)
    return tuple(f"{kernel.name}_{kernel.variant}" for kernel in lowered.kernels)


def _of_rows(reduction: Reduction | Scan, language: str) -> tuple[str, ...]:
    group = reduction.group
    variants = tuple(f"{group}_{folding.variant}" for folding in reduction.foldings)
    if not reduction.cut:
        return variants
    if language == "cuda":
        return (f"{group}_pieces", f"{group}_partial_bytes", *variants)
    second = "scan" if isinstance(reduction, Scan) else "finish"
    parts = (f"{variant}_{part}" for variant in variants for part in ("fold", second))
    return (f"{group}_partial_bytes", *parts)
