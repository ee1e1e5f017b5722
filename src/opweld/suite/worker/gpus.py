"""The GPUs of this machine as their driver tells, without CUDA or torch."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from opweld.judge.build.ahead import VISIBLE
from opweld.suite.values import Data, Gpu

_LIMIT_S = 60.0
_MIB = 1 << 20
_WHO = ("index", "uuid", "name", "memory.total")
_STATE = (
    *("memory.used", "ecc.errors.uncorrected.volatile.total", "clocks.sm", "clocks.mem"),
    *("clocks.max.sm", "clocks.max.mem", "power.limit", "power.draw", "temperature.gpu"),
    *("driver_version", "persistence_mode"),
)
# What a GPU may keep of a unit beyond its end: the driver's own, which comes and goes.
SPARE_BYTES = 256 * _MIB


@dataclass(frozen=True, slots=True)
class State:
    """A GPU at one moment: bytes in use, uncorrected memory errors since it was started, and the
    rest (clocks in MHz, power in W, temperature) as the driver names it.
    """

    gpu: Gpu
    used_bytes: int
    memory_errors: int
    told: Data

    @property
    def free_bytes(self) -> int:
        return self.gpu.memory_bytes - self.used_bytes


class NoAnswer(Exception):
    """The driver did not answer, or not for this GPU."""


def visible_gpus() -> tuple[Gpu, ...]:
    """Those that a process started from here would use; none where there is no driver."""
    try:
        found = [state.gpu for state in _query(None)]
    except NoAnswer:
        return ()
    given = os.environ.get(VISIBLE)
    if given is None:
        return tuple(found)
    names = [name.strip() for name in given.split(",")]
    named = {str(gpu.index): gpu for gpu in found} | {gpu.uuid: gpu for gpu in found}
    chosen: list[Gpu] = []
    for name in names:  # CUDA's own reading: the list ends at the first entry that is none
        gpu = named.get(name) or next((g for g in found if name and g.uuid.startswith(name)), None)
        if gpu is None:
            break
        chosen.append(gpu)
    return tuple(chosen)


def state_of(gpu: Gpu) -> State:
    """How the GPU is now.

    Raises:
        NoAnswer: it is lost, or the driver is.
    """
    found = [state for state in _query(gpu.uuid) if state.gpu.uuid == gpu.uuid]
    if not found:
        raise NoAnswer(f"the driver does not list {gpu.uuid} any more")
    return found[0]


def _query(uuid: str | None) -> list[State]:
    one = [f"--id={uuid}"] if uuid else []
    asked = ",".join((*_WHO, *_STATE))
    command = ["nvidia-smi", *one, f"--query-gpu={asked}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswer(f"nvidia-smi does not answer: {error}") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or ["nothing was printed"]
        raise NoAnswer(f"nvidia-smi fails: {said[-1]}")
    return [_state(line) for line in done.stdout.splitlines() if line.strip()]


def _state(line: str) -> State:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(_WHO) + len(_STATE):
        raise NoAnswer(f"nvidia-smi answers {line!r}")
    index, uuid, name, total = cells[: len(_WHO)]
    told = dict(zip(_STATE, map(_figure, cells[len(_WHO) :]), strict=True))
    used, errors = told.pop(_STATE[0]), told.pop(_STATE[1])
    gpu = Gpu(uuid, name, int(float(total)) * _MIB, int(index))
    if not isinstance(used, float):
        raise NoAnswer(f"the driver does not know what memory of {uuid} is in use")
    return State(gpu, int(used) * _MIB, int(errors) if isinstance(errors, float) else 0, told)


def _figure(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell  # [N/A], or a word
