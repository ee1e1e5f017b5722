"""The accounts of the benchmarks: what a run was made on, and the file that keeps its cases."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import torch

# Runs on the same inputs, of which none may differ from the first in a bit.
EQUAL_RUNS = 20


def run_of_today(on_cpu: bool = False) -> dict[str, Any]:
    """The date, the command that this process is, the device, the versions."""
    return {
        "date": date.today().isoformat(),
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "device": device_name(on_cpu),
        "versions": {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
        },
    }


def device_name(on_cpu: bool = False) -> str:
    """The GPU's name; where there is none, or the benchmark is of the CPU, how many cores."""
    if torch.cuda.is_available() and not on_cpu:
        return torch.cuda.get_device_name()
    return f"CPU, {len(os.sched_getaffinity(0))} cores"


def slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def keep(
    path: Path,
    account: dict[str, Any],
    run: dict[str, Any],
    result: dict[str, Any],
    names: Iterable[str],
) -> None:
    """Puts a case among those of the file, in the order of `names`; each says which run it is of.

    The file is headed by `account`, that of the last run.
    """
    before = json.loads(path.read_text())["cases"] if path.exists() else []
    found = {case["name"]: case for case in (*before, {**result, "run": run})}
    cases = [found[name] for name in names if name in found]
    path.write_text(json.dumps({**account, "cases": cases}, indent=1) + "\n")


def runs_that_differ(run: Callable[[], torch.Tensor]) -> dict[str, int]:
    """How many of EQUAL_RUNS calls return other bits than the first one did."""
    first = run()
    different = [not torch.equal(_bits(run()), _bits(first)) for _ in range(EQUAL_RUNS)]
    return {"runs": EQUAL_RUNS, "different_runs": sum(different)}


def _bits(result: torch.Tensor) -> torch.Tensor:
    """Integers, for NaN is not equal to itself."""
    if not result.is_floating_point():
        return result
    widths = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return result.contiguous().view(widths[result.element_size()])
