"""Errors against float64, of ModelNew beside eager's, on one logarithmic axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opweld.judge.values import Check, OutputErrors
from opweld.report.scale import LogScale, Tick, error, figure


@dataclass(frozen=True, slots=True)
class Mark:
    """One error on the axis; an error of 0 stands at its left end, and says so."""

    at: float
    text: str
    is_zero: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One output, or the worst one on inputs of one kind."""

    name: str
    dtype: str
    grade: str
    note: str
    rms: Mark | None = None
    eager_rms: Mark | None = None
    most: Mark | None = None
    eager_most: Mark | None = None
    ulp: str = ""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """`outputs` on the model's own inputs, `checks` on all kinds of inputs that were graded."""

    own: str
    outputs: tuple[Line, ...]
    checks: tuple[Line, ...]
    ticks: tuple[Tick, ...]
    check_ticks: tuple[Tick, ...]


def accuracy_of(checks: Sequence[Check]) -> Accuracy | None:
    """None where nothing was held against float64."""
    graded = [check for check in checks if check.grade and not check.skipped]
    measured = [check for check in graded if check.error_vs_f64]
    if not graded:
        return None
    own = next(iter(measured), graded[0])
    outputs: Sequence[Check | OutputErrors] = own.outputs or (own,)
    own_scale = LogScale.around(_values(outputs), 2.0, 98.0)
    scale = LogScale.around(_values(measured), 2.0, 98.0)
    return Accuracy(
        own.name,
        tuple(_line(each, each.output or "all outputs", own_scale) for each in outputs),
        tuple(_line(check, check.name, scale) for check in graded),
        own_scale.ticks() if measured else (),
        scale.ticks() if measured else (),
    )


def _values(found: Iterable[Check | OutputErrors]) -> Iterable[float]:
    for each in found:
        for errors in (each.error_vs_f64, each.eager_error_vs_f64):
            if errors:
                yield from (errors.rms, errors.max)


def _line(each: Check | OutputErrors, name: str, scale: LogScale) -> Line:
    ours, eager = each.error_vs_f64, each.eager_error_vs_f64
    if ours is None or eager is None:
        detail = each.detail if isinstance(each, Check) else "compared with eager alone"
        return Line(name, each.dtype or "", each.grade or "", detail)
    ulp = f"{figure(each.ulp_p50)} / {figure(each.ulp_p99)} / {figure(each.max_ulp)}"
    return Line(
        name,
        each.dtype or "",
        each.grade or "",
        "",
        rms=_mark(ours.rms, scale),
        eager_rms=_mark(eager.rms, scale),
        most=_mark(ours.max, scale),
        eager_most=_mark(eager.max, scale),
        ulp=ulp,
    )


def _mark(value: float, scale: LogScale) -> Mark:
    return Mark(scale.at(value), error(value), value == 0)
