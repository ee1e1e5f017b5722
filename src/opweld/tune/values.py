"""What a search finds: plain frozen values that survive JSON. Times are microseconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

KINDS = ("pointwise", "contraction")


@dataclass(frozen=True, slots=True)
class Search:
    """What is asked for: `kinds` of groups, `limit_s` seconds for all, and the command that the
    rows name.
    """

    kinds: tuple[str, ...] = KINDS
    limit_s: float = 600.0
    command: str = "opweld tune"


@dataclass(frozen=True, slots=True)
class Trial:
    """One schedule of a class: median and marks of the groups' kernels together."""

    schedule: str
    us: float
    p10_us: float
    p90_us: float
    runs: int

    @property
    def spread_us(self) -> float:
        """Half of the range from the 10 to the 90 percent mark."""
        return (self.p90_us - self.p10_us) / 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found for one class. `trials` are in order of speed; `again` has the winner and the
    current choice of the second run, where there was one; `copy_us` is a copy of as many bytes.
    """

    kind: str
    type: str
    shape: str
    groups: tuple[str, ...]
    current: str
    trials: tuple[Trial, ...]
    again: tuple[Trial, ...]
    proposed: bool
    said: str
    copy_us: float | None = None

    def trial(self, schedule: str) -> Trial | None:
        """The figures of a schedule, those of the second run where it was in it."""
        return next((t for t in (*self.again, *self.trials) if t.schedule == schedule), None)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search. `before` and `after` are the texts of the table."""

    target: str
    device: str
    torch: str
    date: str
    table: str
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]
    rows: tuple[str, ...]
    before: str
    after: str
    diff: str

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def found_from(data: dict[str, Any]) -> Found:
    """The value that `to_data` described, after a trip through JSON."""
    outcomes = tuple(_outcome_from(outcome) for outcome in data["outcomes"])
    return Found(
        **{**data, "outcomes": outcomes, "notes": tuple(data["notes"]), "rows": tuple(data["rows"])}
    )


def _outcome_from(data: dict[str, Any]) -> Outcome:
    trials = {name: tuple(Trial(**trial) for trial in data[name]) for name in ("trials", "again")}
    return Outcome(**{**data, **trials, "groups": tuple(data["groups"])})
