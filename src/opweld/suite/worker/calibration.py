"""What the device of a slot reaches, measured before its first unit, in a process of its own."""

from __future__ import annotations

import json
import sys

from opweld.process.child import run_child
from opweld.process.worker import child_environment
from opweld.suite.store import now
from opweld.suite.values import Data, Gpu
from opweld.suite.worker.gpus import NoAnswer, state_of

COMMAND = (sys.executable, "-P", "-m", "opweld.judge.measure.calibration")
_LIMIT_S = 300.0


def calibrate(gpu: Gpu | None, environ: dict[str, str]) -> Data:
    """Rates of a copy and of products, with clocks and limits of power before and after; where it
    fails, `failed` says why.
    """
    before = _told(gpu)
    finished = run_child(COMMAND, time_limit_s=_LIMIT_S, environ={**child_environment(), **environ})
    try:
        rates = json.loads(finished.last_line)
    except ValueError:
        rates = {"failed": f"{finished.ending()}: {finished.last_line}"}
    return {"at": now(), "before": before, **rates, "after": _told(gpu)}


def _told(gpu: Gpu | None) -> Data:
    if gpu is None:
        return {}
    try:
        return state_of(gpu).told
    except NoAnswer as error:
        return {"failed": str(error)}
