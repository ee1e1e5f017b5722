"""What emission gets: every captured variant with its plan and kernels, and the original's text."""

from __future__ import annotations

from dataclasses import dataclass

from .contract import Variant
from .kernel import Source, Welded
from .plan import Plan


@dataclass(frozen=True, slots=True)
class Program:
    """One variant all the way down to kernels. `plan.graph` is the simplified graph."""

    variant: Variant
    plan: Plan
    kernels: tuple[Welded, ...]


@dataclass(frozen=True, slots=True)
class Original:
    """Where the original class comes from.

    `source` is the model file's text, embedded in the emitted file; None for a class that is imported:
    then `module` and `class_name` (a qualified name) say from where. `file_name` is for the head.
    """

    file_name: str
    class_name: str
    source: str | None
    module: str | None = None


@dataclass(frozen=True, slots=True)
class Emission:
    """Everything that the emitted file is made of. `kernels` is the text of all programs' kernels."""

    original: Original
    programs: tuple[Program, ...]
    same_under_autocast: tuple[str, ...]
    kernels: Source
    target: str
    arch: str
    version: str
    weight_cache: bool
