"""Why a case of an account has no figures in a table, whichever script the account is of."""

from __future__ import annotations

import math
from typing import Any

# Below it a result is wrong, and its speed is of no interest.
LOWEST_GRADE = "C"


def fault_of(case: dict[str, Any]) -> str:
    """What is wrong with the result of a case; nothing where it may have figures.

    Where eager's own equal calls differ, as its sums have no order, ours may.
    """
    verdict = case.get("verdict") or {}
    if not verdict.get("passed", True):
        return "not equivalent"
    error = case.get("error") or {}
    worst = max(holder.get("grade") or "A" for holder in (case, error, verdict))
    if worst > LOWEST_GRADE:
        return f"grade {worst}"
    if any(math.isnan(error[name]) for name in ("rms", "max") if name in error):
        return "NaN"
    differ = case.get("different_runs") or case.get("unequal_runs")
    if differ and not case.get("eager_unequal_runs"):
        return f"{differ} of {case['runs']} runs differ"
    return "" if case.get("kernels_ran", 1) else "its kernels did not run"


def why_refused(case: dict[str, Any]) -> str | None:
    """Why a case has no row of figures: it failed, its result was wrong or changed between runs."""
    if "problem" in case:
        return str(case["problem"]).partition(":")[0]
    if "status" in case and not case.get("timing"):
        return f"no result: status {case['status']}"
    fault = fault_of(case)
    return f"wrong: {fault}" if fault else None
