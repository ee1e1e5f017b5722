"""What the driver writes down of each unit: one row, made of its answer and its outcome."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from opweld.errors import OpweldError
from opweld.suite import artefacts
from opweld.suite.store import Store, now
from opweld.suite.values import ERROR, OPERATIONS, Answer, Data, Outcome, Unit, Work

_TIMES = ("eager_ms", "compile_ms", "opweld_ms")
_VERSIONS = ("python", "torch", "cuda", "driver")


class Recorder:
    """Writes to the store for one run, and files for whoever asked for them."""

    def __init__(self, store: Store, run: int, work: Work, output: Path | None) -> None:
        self.run = run
        self._store, self._work, self._output = store, work, output
        self._calibrations: dict[str, int] = {}

    def result(
        self,
        key: str,
        unit: Unit,
        digests: dict[str, str],
        answer: Answer,
        outcome: Outcome | None,
        attempts: int,
        build_seconds: float,
    ) -> Answer:
        """The files of a unit, then its row; the answer as it was written down."""
        try:
            written = artefacts.deliver(answer.files, Path(unit.model), key, self._output)
        except OpweldError as error:
            answer, written = replace(answer, verdict=ERROR, cause="output", reason=str(error)), []
        account = answer.account | ({"model_new": str(written[0])} if written else {})
        # what a function of one's own returns may have anything under these names
        ours = account if self._work.do in OPERATIONS else {}
        self._store.add_result(
            unit=key,
            run=self.run,
            name=unit.name,
            do=self._work.do,
            model=unit.model,
            new=unit.new or (str(written[0]) if written else ""),
            digests=digests,
            verdict=answer.verdict,
            cause=answer.cause,
            reason=answer.reason,
            attempts=attempts,
            build_seconds=build_seconds,
            account=account,
            **_figures(ours),
            **self._place(ours, outcome),
        )
        return answer

    def fault(self, key: str, outcome: Outcome) -> None:
        self._store.add_fault(
            run=self.run,
            unit=key,
            fault=outcome.fault,
            detail=outcome.detail,
            node=outcome.node,
            gpu=outcome.gpu.uuid if outcome.gpu else "",
            log=outcome.log,
        )

    def _place(self, account: Data, outcome: Outcome | None) -> Data:
        """Where and when."""
        if outcome is None:  # it ended before it began
            return {
                "node": "",
                "gpu": "",
                "device": "",
                "state": {},
                "started": now(),
                "seconds": 0.0,
                "log": "",
            }
        gpu = outcome.gpu
        return {
            "node": outcome.node,
            "gpu": gpu.uuid if gpu else "",
            "device": account.get("device") or (gpu.name if gpu else "cpu"),
            "calibration": self._calibration(outcome),
            "state": outcome.state,
            "started": outcome.started,
            "seconds": outcome.seconds,
            "log": outcome.log,
        }

    def _calibration(self, outcome: Outcome) -> int | None:
        """The row of the device's calibration, which is written once for each."""
        if not outcome.calibration:
            return None
        device = f"{outcome.slot} {outcome.calibration.get('at')}"
        if device not in self._calibrations:
            self._calibrations[device] = self._store.add_device(
                run=self.run,
                node=outcome.node,
                gpu=outcome.gpu.uuid if outcome.gpu else "",
                name=outcome.gpu.name if outcome.gpu else "cpu",
                calibration=outcome.calibration,
            )
        return self._calibrations[device]


def _figures(account: Data) -> Data:
    """What can be asked for by column, of an account of `check` or `optimize`."""
    verdict, timing = account.get("verdict") or {}, account.get("timing") or {}
    environment = account.get("environment") or {}
    against = timing.get("vs_eager") or {}
    medians = {name: _number((timing.get(name) or {}).get("median")) for name in _TIMES}
    eager, ours = medians["eager_ms"], medians["opweld_ms"]
    return {
        **medians,
        "limit_ms": _number(timing.get("limit_ms")),
        # of one process, one GPU, one minute: what can be compared between devices
        "ratio": _number(against.get("ratio")) or (ours / eager if ours and eager else None),
        "ratio_low": _number(against.get("low")),
        "ratio_high": _number(against.get("high")),
        "grade": verdict.get("grade"),
        "seed": account.get("seed"),
        "versions": {
            "opweld": account.get("opweld"),
            **{name: environment.get(name, account.get(name)) for name in _VERSIONS},
        },
    }


def _number(value: Any) -> float | None:
    """A finite figure; JSON has the others by their names."""
    return float(value) if isinstance(value, (int, float)) else None
