"""Kernels -> Sources: CUDA or C++ text of all kernels of one emitted file."""

from __future__ import annotations

import hashlib

from ..ir.kernel import Source, Welded
from .cpp import cpp_text
from .cuda import cuda_text


def render(name: str, kernels: tuple[Welded, ...], language: str) -> Source:
    """One translation unit with every kernel and its launchers; `language` is "cuda" or "c++"."""
    text = {"cuda": cuda_text, "c++": cpp_text}[language](kernels)
    entry_points = tuple(
        f"{welded.group}_{kernel.variant}"
        for welded in kernels
        for kernel in (welded.contiguous, welded.strided)
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Source(name, language, text, entry_points, digest)
