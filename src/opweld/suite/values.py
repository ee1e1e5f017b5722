"""What a suite is made of: plain frozen values that survive JSON. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CHECK, OPTIMIZE, TUNE = OPERATIONS = ("check", "optimize", "tune")
# A unit is built by processors, then measured alone on its device.
BUILD, MEASURE = "build", "measure"

# How a unit can end. The last one is for what several machines failed to finish.
PASSED, FAILED, REFUSED, CRASHED, TIMED_OUT, ERROR, LOST = VERDICTS = (
    *("passed", "failed", "refused", "crashed", "timed out", "error", "lost"),
)
# Why an attempt came to nothing: the machine's doing, so that it is worth another one.
WORKER_LOST, GPU_LOST, GPU_BUSY, NODE_LOST = FAULTS = (
    *("worker lost", "GPU lost", "GPU busy", "node lost"),
)
# An attempt that was ended by its driver, or whose task was cancelled: no fault, and no answer.
INTERRUPTED = "interrupted"
# Of these the device is to blame, and gets no more work.
GPU_FAULTS = (GPU_LOST,)

Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver names it."""

    uuid: str
    name: str
    memory_bytes: int
    index: int = 0


@dataclass(frozen=True, slots=True)
class Slot:
    """A place where one task at a time can run: on a GPU, on processors of a node, or (with
    `gpu` None and `any_gpu`) on whatever a scheduler finds for the task.
    """

    id: str
    node: str
    phases: tuple[str, ...] = (MEASURE,)
    gpu: Gpu | None = None
    any_gpu: bool = False
    # Threads that torch may use there; 0 is its own choice.
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Unit:
    """One pair, or one model: what is done once, and has one row in the store.

    `model` and `new` are paths; without `new`, a check is of one file with both. `reference` and
    `candidate` name functions of them. `gpu` is a part of the name of the GPU that it needs
    ("H200", in any case), `gpu_memory_gb` (10^9 bytes) what must be free there.
    """

    name: str
    model: str
    new: str = ""
    reference: str = ""
    candidate: str = ""
    gpu: str = ""
    gpu_memory_gb: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with each unit: one of OPERATIONS, or "module:function" of one's own.

    `asked` is how, as plain data (`asking.py`). `limit_s` ends a task whatever it does, beyond the
    limits that the operation has itself. `exclusive` work has its device to itself.
    """

    do: str
    asked: Data = field(default_factory=dict)
    limit_s: float = 3600.0
    exclusive: bool = True
    builds_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """A phase of one unit for one slot; `key` is the unit's, `artefacts` a folder that an earlier
    phase of it filled and the driver published, `built_for` the GPU that a build is for.
    """

    id: str
    key: str
    phase: str
    unit: Unit
    work: Work
    digests: dict[str, str]
    artefacts: str = ""
    built_for: Gpu | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a phase gives: the verdict with its cause and reason, an account as `--json` writes it,
    and files (name to text) for the driver to publish.
    """

    verdict: str
    cause: str = ""
    reason: str = ""
    account: Data = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended: with an answer, or by a fault of the machine, which is no one's answer.

    `bad_gpu` says why its GPU must not be used again, whatever the answer. `calibration` is what
    the device reached when it was tried first, `state` its clocks and limits at this task.
    """

    task: str
    slot: str
    answer: Answer | None = None
    fault: str = ""
    detail: str = ""
    bad_gpu: str = ""
    node: str = ""
    gpu: Gpu | None = None
    calibration: Data = field(default_factory=dict)
    state: Data = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0
    log: str = ""
