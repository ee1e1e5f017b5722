"""The outputs of timed calls, judged like those of any check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opweld.judge.inputs.kinds import Kind
from opweld.judge.load import Call
from opweld.judge.numerics.outputs import Comparison
from opweld.judge.values import Check
from opweld.judge.verify.run import Run
from opweld.judge.verify.trial import POOL_ELEMS, Trial

NAME = "timed results"


class TimedResults:
    """Takes in the outputs of one call after the other.

    All are graded together, for a grade needs some elements; of very few, being close will do.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._comparison: Comparison | None = None
        self._checks: list[Check] = []
        self._num_calls = 0

    def add(self, make: Callable[[], Call], run: Run) -> None:
        """`run` holds what ModelNew returned for the inputs that `make` makes again."""
        self._num_calls += 1
        kind = Kind(NAME, lambda draw: make())
        outcome = self._trial.compare_run(kind, run, self._comparison)
        if isinstance(outcome, Check):
            self._checks.append(outcome)
        else:
            self._comparison = outcome

    def check(self) -> Check:
        for check in self._checks:
            if not check.passed:
                return check
        if self._comparison is None:
            reason = self._checks[0].detail if self._checks else "none was looked at"
            return Check(NAME, True, reason, skipped=True)
        found = f"of {self._num_calls} calls, chosen afterwards"
        if not self._comparison.sums and not self._comparison.num_wrong:
            return Check(NAME, True, found)
        check = self._comparison.check(NAME)
        if self._comparison.num_float_elems() < POOL_ELEMS and self._comparison.close:
            check = replace(check, passed=True)
        return replace(check, grade=None, detail=found) if check.passed else check
