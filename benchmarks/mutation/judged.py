"""What the judge says of a mutant in its narrower scope and, where it passes, in the other."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from opweld.errors import OpweldError
from opweld.judge import Server, Settings, Verdict, check
from opweld.judge.values import SCOPES

# One seed for all, so that a mutant is judged alike in every run; stops at the first failing check.
SETTINGS = Settings(device="cpu", measure=False, seed=1, thorough=False, time_limit_s=120.0)

# Paths but for the file's name: the same in every run.
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/:]+/)+")


def judge(model: Path, new: Path, server: Server, builds: Path) -> dict[str, Any]:
    """The scope that catches it and how, None for one that passes both; and how long that took.

    With one seed both scopes make the same checks: where nothing was refused in the narrower one,
    the other would say the same.
    """
    start = time.perf_counter()
    found: dict[str, Any] = {"caught_in": None}
    for scope in SCOPES:
        settings = replace(SETTINGS, scope=scope)
        try:
            verdict = check(model, new, settings, server=server, builds=builds).verdict
        except OpweldError as error:  # a judgement that could not be made is no mutant caught
            found = {"caught_in": None, "error": str(error)}
            break
        if not verdict.passed:
            reason = _FOLDERS.sub("", verdict.reason)[:300]
            found = {"caught_in": scope, "by": caught_by(verdict), "reason": reason}
            break
        found |= {"grade": verdict.grade, "unsupported": list(verdict.unsupported)}
        if not verdict.unsupported:
            break
    return {**found, "seconds": round(time.perf_counter() - start, 1)}


def caught_by(verdict: Verdict) -> str:
    """The first check that fails; without one the process ended, hung or could not be loaded."""
    if verdict.failures:
        return verdict.failures[0].name
    return "time limit" if "did not return within" in verdict.reason else "crash"
