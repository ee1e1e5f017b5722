"""Kernels -> Sources: CUDA or C++ text of all kernels of one emitted file."""

from __future__ import annotations

import hashlib

from ..ir.kernel import Contraction, Lowered, Source
from .cpp import cpp_text
from .cuda import cuda_text


def render(name: str, kernels: tuple[Lowered, ...], language: str) -> Source:
    """One translation unit with every kernel and its launchers; `language` is "cuda" or "c++"."""
    text = {"cuda": cuda_text, "c++": cpp_text}[language](kernels)
    entry_points = tuple(name for lowered in kernels for name in _entry_points(lowered))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Source(name, language, text, entry_points, digest)


def _entry_points(lowered: Lowered) -> tuple[str, ...]:
    if isinstance(lowered, Contraction):
        return tuple(f"{lowered.group}_{name}" for name in ("contract", "held", "workspace"))
    return tuple(f"{kernel.name}_{kernel.variant}" for kernel in lowered.kernels)
