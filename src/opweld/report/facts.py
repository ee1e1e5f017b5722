"""What the page says in words: the heading, the checks, the environment, how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opweld.account import Account
from opweld.judge.report import SCOPE_TEXTS
from opweld.judge.values import Check
from opweld.report.scale import error, ratio

PASSED, FAILED, UNJUDGED = "passed", "failed", "unjudged"


@dataclass(frozen=True, slots=True)
class Tile:
    """A large figure at the head of the page."""

    figure: str
    label: str


@dataclass(frozen=True, slots=True)
class Heading:
    title: str
    state: str
    verdict: str
    reason: str
    tiles: tuple[Tile, ...]
    explanation: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checks:
    """By what became of them; `refused` is what ModelNew need not do and refused."""

    failed: tuple[Check, ...]
    passed: tuple[Check, ...]
    skipped: tuple[Check, ...]
    refused: tuple[Check, ...]


def heading_of(account: Account) -> Heading:
    verdict = account.verdict
    title = Path(account.model).name
    if verdict is None:
        said = "NOT VERIFIED"
        reason = "The judge was not asked: nothing is known of its results and of its speed."
        return Heading(title, UNJUDGED, said, reason, (), (), account.notes)
    use = " for inference only" if verdict.inference_only else ""
    said = f"EQUIVALENT{use}, grade {verdict.grade}" if verdict.passed else "NOT EQUIVALENT"
    scope = f"Judged for {SCOPE_TEXTS.get(verdict.scope, verdict.scope)}."
    unjudged = (f"Cannot be judged: {sentence}" for sentence in verdict.unjudged)
    degenerate = (f"Degenerate: {account.degenerate}",) if account.degenerate else ()
    return Heading(
        title,
        PASSED if verdict.passed else FAILED,
        said,
        scope if verdict.passed else verdict.reason,
        tuple(_tiles(account)),
        verdict.explanation,
        (*account.notes, *unjudged, *degenerate),
    )


def _tiles(account: Account) -> list[Tile]:
    timing, verdict = account.timing, account.verdict
    found = []
    if timing and timing.is_steady:
        if timing.speedup_vs_eager:
            found.append(Tile(ratio(timing.speedup_vs_eager), "the speed of eager"))
        if timing.speedup_vs_compile:
            found.append(Tile(ratio(timing.speedup_vs_compile), "that of torch.compile"))
        if timing.opweld_ms.median:
            share = 100 * timing.limit_ms / timing.opweld_ms.median
            found.append(Tile(f"{share:.0f} %", "of the speed of the floor"))
    checks = verdict.checks if verdict else ()
    first = next((check for check in checks if check.error_vs_f64), None)
    if first and first.error_vs_f64 and first.eager_error_vs_f64:
        eager = error(first.eager_error_vs_f64.max)
        found.append(Tile(error(first.error_vs_f64.max), f"largest error, eager's {eager}"))
    return found


def checks_of(checks: Sequence[Check]) -> Checks:
    return Checks(
        failed=tuple(c for c in checks if not c.passed),
        passed=tuple(c for c in checks if c.passed and not c.skipped and not c.unsupported),
        skipped=tuple(c for c in checks if c.passed and c.skipped and not c.unsupported),
        refused=tuple(c for c in checks if c.passed and c.unsupported),
    )


def environment_of(account: Account) -> list[tuple[str, str]]:
    """Names and values, without what is not known."""
    found = account.environment
    known = [
        ("opweld", account.opweld),
        ("made for", account.target),
        ("date", account.date),
        ("seed", None if account.seed is None else str(account.seed)),
    ]
    if found:
        known += [
            ("device", found.device_name),
            ("processor", f"{found.cpu}, {found.num_threads} threads"),
            ("Python", found.python),
            ("torch", found.torch),
            ("CUDA", found.cuda),
            ("driver", found.driver),
            ("allocator", found.allocator),
            ("float32", found.float32_precision),
            ("sandbox", found.sandbox),
        ]
    stages = ", ".join(f"{name} {spent:.1f}" for name, spent in account.seconds.items())
    known.append(("seconds by stage", stages))
    return [(name, value) for name, value in known if value]


def commands_of(account: Account) -> list[str]:
    """What was run, if that is known, and what judges the two files with the same inputs."""
    found = [account.command] if account.command else []
    files = (account.model, account.model_new)
    judged_alone = account.command and account.command.startswith("opweld check")
    if account.verdict and not judged_alone and all(name.endswith(".py") for name in files):
        seed = [] if account.seed is None else ["--seed", str(account.seed)]
        found.append(shlex.join(["opweld", "check", *files, *seed]))
    return found
