"""The account of a run as plain data: what `--json` writes, documented in docs/json.md.

Its JSON schemas in docs/schema/ are made from the classes here and in judge/values.py.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opweld import __version__
from opweld.compiled import Compiled, PlanRow
from opweld.give_back import Decision
from opweld.judge.values import Environment, Judgement, KernelTiming, LossCurves, Timing, Verdict
from opweld.options import Options
from opweld.pipeline import Delivery

SCHEMA_VERSION = 1
# A longer text of the user's is not taken into an account.
LONGEST_TEXT_BYTES = 256 * 1024


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
    """Everything about one run. Fields of the compiler are empty where only the judge ran.

    `command` does the same again, with the same inputs; `sources` has the texts of the model file,
    and of a ModelNew that was given, by the names of the files.
    """

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
    date: str | None = None
    command: str | None = None
    sources: dict[str, str] = field(default_factory=dict)
    kernel_texts: dict[str, str] = field(default_factory=dict)
    line_texts: dict[str, str] = field(default_factory=dict)
    curves: LossCurves | None = None


def of_delivery(delivery: Delivery, command: str | None = None) -> Account:
    """The account of `opweld optimize`; `command` is the one that was given."""
    compiled = delivery.compiled
    return Account(
        **_head(delivery.model, delivery.out, delivery.judgement, command),
        sources=_texts(delivery.model),
        target=compiled.target,
        kernels=delivery.kernels,
        **_compilation(compiled),
        notes=delivery.notes,
        decisions=delivery.decisions,
    )


def of_judgement(
    model: Path, new: Path, judgement: Judgement, command: str | None = None
) -> Account:
    """The account of `opweld check`, and of an optimisation whose result was refused."""
    return Account(
        **_head(model, new, judgement, command),
        sources=_texts(model, new),
        target=judgement.environment.device if judgement.environment else None,
        kernels=judgement.kernels,
    )


def _texts(*paths: Path) -> dict[str, str]:
    """The texts of files by their names; a folder, and what is not there or too long, has none."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_size <= LONGEST_TEXT_BYTES:
                found[path.name] = path.read_text("utf-8", errors="replace")
    return found


def command_of(words: Sequence[str], environ: Mapping[str, str], seed: int | None) -> str:
    """The command line that does again what `words` did, behind the name of the program.

    With the variables that opweld read, and with the seed that was drawn.
    """
    read = {item.metadata["env"] for item in fields(Options) if item.metadata.get("env")}
    given = [f"{name}={shlex.quote(environ[name])}" for name in sorted(read & environ.keys())]
    drawn = [] if seed is None or _names_seed(words) else ["--seed", str(seed)]
    return " ".join([*given, shlex.join(["opweld", *words, *drawn])])


def _names_seed(words: Sequence[str]) -> bool:
    return any(word == "--seed" or word.startswith("--seed=") for word in words)


def _head(
    model: Path, new: Path, judgement: Judgement | None, command: str | None
) -> dict[str, Any]:
    environment = judgement.environment if judgement else None
    return {
        "schema_version": SCHEMA_VERSION,
        "opweld": __version__,
        "model": str(model),
        "model_new": str(new),
        "device": environment.device_name if environment else None,
        "environment": environment,
        "seed": judgement.seed if judgement else None,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "verdict": judgement.verdict if judgement else None,
        "degenerate": judgement.degenerate if judgement else None,
        "curves": judgement.curves if judgement else None,
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
        "kernel_texts": compiled.kernel_texts,
        "line_texts": compiled.line_texts,
    }
