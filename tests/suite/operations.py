"""Operations of a suite's own for its tests: trivial ones, and those that do harm."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

# By a unit's number, of forty: how it ends.
CRASHES, HANGS, KILLS, FAILS = (3, 23), (7, 27), (11,), (5, 15, 25, 35)
NUM_UNITS = 40


def trivial(unit: dict[str, Any]) -> dict[str, Any]:
    return {"passed": True, "reason": unit["name"]}


def returns_a_list(unit: dict[str, Any]) -> list[str]:
    return [unit["name"]]


def slow(unit: dict[str, Any]) -> dict[str, Any]:
    """Leaves the times at which it ran, in a file beside its model."""
    begin = time.monotonic()
    time.sleep(0.2)
    with open(f"{unit['model']}.times", "a", encoding="utf-8") as out:
        out.write(f"{begin} {time.monotonic()}\n")
    return {}


def hang(unit: dict[str, Any]) -> None:
    time.sleep(1000)


def harmful(unit: dict[str, Any]) -> dict[str, Any]:
    number = int(unit["name"])
    if number in CRASHES:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number in HANGS:
        time.sleep(1000)
    if number in KILLS:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    return {"passed": number not in FAILS, "cause": "a five", "reason": "as it is"}


def kills_once(unit: dict[str, Any]) -> dict[str, Any]:
    """Its worker, at the first attempt."""
    if not os.path.exists(f"{unit['model']}.tried"):
        open(f"{unit['model']}.tried", "w").close()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    return {"passed": True}


def harmful_in_forties(unit: dict[str, Any]) -> dict[str, Any]:
    """Any number of units, of which each forty do as the first."""
    return harmful({**unit, "name": str(int(unit["name"]) % NUM_UNITS)})


def leaves_a_process(unit: dict[str, Any]) -> dict[str, Any]:
    """In a session of its own, so that it does not end with this one; its id is left, too."""
    left = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
    with open(f"{unit['model']}.left", "a", encoding="utf-8") as out:
        out.write(f"{left.pid}\n")
    return {}
