"""The account of a run as plain data: what `--json` writes, documented in docs/json.md.

Its JSON schemas in docs/schema/ are made from the classes here and in judge/values.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opweld import __version__
from opweld.compiled import Compiled, PlanRow
from opweld.give_back import Decision
from opweld.judge.values import Environment, Judgement, KernelTiming, Timing, Verdict, to_plain
from opweld.pipeline import Delivery

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class FiredRule:
    """A rewrite rule that fired, and what it promises about numbers."""

    name: str
    numerics: str


@dataclass(frozen=True, slots=True)
class LeftCall:
    """An operation that was left to PyTorch, and why."""

    op: str
    reason: str


@dataclass(frozen=True, slots=True)
class Account:
    """Everything about one run. Fields of the compiler are empty where only the judge ran."""

    schema_version: int
    opweld: str
    model: str
    model_new: str
    device: str | None
    environment: Environment | None
    seed: int | None
    verdict: Verdict | None
    timing: Timing | None
    timing_error: str | None
    target: str | None
    kernels: tuple[KernelTiming, ...]
    kernel_calls: dict[str, int] = field(default_factory=dict)
    degenerate: str | None = None
    plan: tuple[PlanRow, ...] = ()
    rules: tuple[FiredRule, ...] = ()
    library: tuple[LeftCall, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    rewritten: tuple[str, ...] = ()


def of_delivery(delivery: Delivery) -> dict[str, Any]:
    """The account of `opweld optimize`."""
    compiled = delivery.compiled
    account = Account(
        **_head(delivery.model, delivery.out, delivery.judgement),
        target=compiled.target,
        kernels=delivery.kernels,
        **_compilation(compiled),
        notes=delivery.notes,
        decisions=delivery.decisions,
    )
    return dict(to_plain(account))


def of_judgement(model: Path, new: Path, judgement: Judgement) -> dict[str, Any]:
    """The account of `opweld check`, and of an optimisation whose result was refused."""
    account = Account(
        **_head(model, new, judgement),
        target=judgement.environment.device if judgement.environment else None,
        kernels=judgement.kernels,
    )
    return dict(to_plain(account))


def _head(model: Path, new: Path, judgement: Judgement | None) -> dict[str, Any]:
    environment = judgement.environment if judgement else None
    return {
        "schema_version": SCHEMA_VERSION,
        "opweld": __version__,
        "model": str(model),
        "model_new": str(new),
        "device": environment.device_name if environment else None,
        "environment": environment,
        "seed": judgement.seed if judgement else None,
        "verdict": judgement.verdict if judgement else None,
        "degenerate": judgement.degenerate if judgement else None,
        "timing": judgement.timing if judgement else None,
        "timing_error": judgement.timing_error if judgement else None,
        "kernel_calls": judgement.kernel_calls if judgement else {},
    }


def _compilation(compiled: Compiled) -> dict[str, Any]:
    return {
        "plan": compiled.plan_rows,
        "rules": tuple(FiredRule(name, numerics) for name, numerics in compiled.rules),
        "rewritten": compiled.rewritten,
        "library": tuple(LeftCall(op, reason) for op, reason in compiled.library),
        "seconds": compiled.seconds,
    }
