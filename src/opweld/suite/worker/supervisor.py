"""Keeps one slot: takes the device's lock, looks after the GPU, and has a worker do the task.

It runs no code of a unit, so that it answers each task: with the worker's answer, or with the fault
of the machine that there is none.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from opweld.judge.build.ahead import VISIBLE
from opweld.judge.values import from_plain
from opweld.suite.store import now
from opweld.suite.values import (
    GPU_BUSY,
    GPU_LOST,
    INTERRUPTED,
    MEASURE,
    PASSED,
    TIMED_OUT,
    WORKER_LOST,
    Answer,
    Data,
    Gpu,
    Outcome,
    Slot,
    Task,
)
from opweld.suite.worker import gpus, locks
from opweld.suite.worker.calibration import calibrate
from opweld.suite.worker.process import ENDED, STOPPED, TOO_LATE, Reply, WorkerProcess
from opweld.suite.worker.serve import LOCK

# A process that was killed gives back the memory of a GPU only when its driver comes to it.
_GIVE_BACK_S = 10.0
_LOOK_S = 0.5

Calibrate = Callable[[Gpu | None, dict[str, str]], Data]


class Supervisor:
    """`state_of` and `calibrate_device` ask the device; `lock_folder` has the locks."""

    def __init__(
        self,
        slot: Slot,
        state_of: Callable[[Gpu], gpus.State] = gpus.state_of,
        calibrate_device: Calibrate = calibrate,
        lock_folder: Path | None = None,
    ) -> None:
        self.slot = slot
        self._state_of, self._calibrate = state_of, calibrate_device
        self._lock_folder = lock_folder or locks.folder()
        self._worker: WorkerProcess | None = None
        self._calibration: Data = {}
        self._stopped = threading.Event()
        self._cancelled = ""

    def run(self, task: Task) -> Outcome:
        """Always comes back, within the limit of the work after the device has become free."""
        outcome = Outcome(task.id, self.slot.id, fault=INTERRUPTED, started=now())
        outcome = replace(outcome, node=platform.node(), gpu=self.slot.gpu)
        if self._stops(task):
            return outcome
        if not (task.work.exclusive and task.phase == MEASURE):
            return _timed(lambda: self._attended(task, outcome))
        device = self.slot.gpu.uuid if self.slot.gpu else locks.CPU
        reply = self._ready_worker().lock(device, self._lock_folder, lambda: self._stops(task))
        if reply.kind != LOCK:
            self._drop_worker()
            return self._read(task, outcome, reply)
        try:
            return _timed(lambda: self._attended(task, replace(outcome, started=now())))
        finally:
            if self._worker is not None:
                self._worker.unlock()

    def cancel(self, task: str) -> None:
        """From another thread: the task, where it is here, comes back as interrupted."""
        self._cancelled = task

    def close(self) -> None:
        """From any thread: ends what runs; no task is taken after it."""
        self._stopped.set()

    def end(self) -> None:
        """From the thread that runs tasks, as the last."""
        self._drop_worker()

    def _stops(self, task: Task) -> bool:
        return self._stopped.is_set() or self._cancelled == task.id

    def _attended(self, task: Task, outcome: Outcome) -> Outcome:
        """With a look at the GPU before, and another one after."""
        gpu = self.slot.gpu
        if gpu is None or task.phase != MEASURE:
            return self._done(task, outcome)
        try:
            before = self._state_of(gpu)
        except gpus.NoAnswer as error:
            return replace(outcome, fault=GPU_LOST, detail=str(error), bad_gpu=str(error))
        if before.free_bytes < task.unit.gpu_memory_gb * 1e9:
            free_gb = before.free_bytes / 1e9
            detail = f"{free_gb:.1f} GB are free, {task.unit.gpu_memory_gb:g} are asked for"
            return replace(outcome, fault=GPU_BUSY, detail=detail)
        outcome = self._done(task, replace(outcome, state=before.told))
        bad = self._harm(gpu, before)
        if bad and outcome.answer is not None and outcome.answer.verdict != PASSED:
            # of a GPU that failed no failure is believed
            return replace(outcome, answer=None, fault=GPU_LOST, detail=bad, bad_gpu=bad)
        return replace(outcome, bad_gpu=outcome.bad_gpu or bad)

    def _harm(self, gpu: Gpu, before: gpus.State) -> str:
        """What became of the GPU that nobody may run on it any more; empty where it is well."""
        until = time.monotonic() + _GIVE_BACK_S
        dropped = False
        while True:
            try:
                after = self._state_of(gpu)
            except gpus.NoAnswer as error:
                return str(error)
            if after.memory_errors > before.memory_errors:
                return f"{after.memory_errors} uncorrected memory errors"
            kept = after.used_bytes - before.used_bytes
            if kept <= gpus.SPARE_BYTES:
                return ""
            if not dropped:
                self._drop_worker()
                dropped = True
            if time.monotonic() > until:
                return f"{kept / 1e9:.1f} GB of its memory were not given back"
            time.sleep(_LOOK_S)

    def _done(self, task: Task, outcome: Outcome) -> Outcome:
        """The worker's reply to the task, as an outcome."""
        if task.phase == MEASURE and task.work.exclusive and not self._calibration:
            self._calibration = self._calibrate(self.slot.gpu, self._environ())
        outcome = replace(outcome, calibration=self._calibration)
        worker = self._ready_worker()
        reply = worker.ask(task, task.work.limit_s, lambda: self._stops(task))
        outcome = replace(outcome, log=worker.log)
        if reply.kind in (ENDED, TOO_LATE, STOPPED):
            self._drop_worker()
        return self._read(task, outcome, reply)

    def _read(self, task: Task, outcome: Outcome, reply: Reply) -> Outcome:
        if reply.kind == STOPPED:
            return outcome
        if reply.kind == ENDED:
            return replace(outcome, fault=WORKER_LOST, detail=str(reply.value))
        if reply.kind == TOO_LATE:
            reason = f"{task.work.do} did not end within {task.work.limit_s:g} s"
            return replace(outcome, fault="", answer=Answer(TIMED_OUT, TIMED_OUT, reason))
        if reply.kind == "fault":
            bad = reply.value["detail"] if reply.value["fault"] == GPU_LOST else ""
            return replace(outcome, **reply.value, bad_gpu=bad)
        return replace(outcome, fault="", answer=from_plain(Answer, reply.value))

    def _ready_worker(self) -> WorkerProcess:
        if self._worker is None:
            self._worker = WorkerProcess(self._environ(), self.slot.gpu)
        return self._worker

    def _environ(self) -> dict[str, str]:
        """What leaves the worker its own device alone."""
        threads = {"OMP_NUM_THREADS": str(self.slot.threads)} if self.slot.threads else {}
        return {VISIBLE: self.slot.gpu.uuid if self.slot.gpu else "", **threads}

    def _drop_worker(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _timed(run: Callable[[], Outcome]) -> Outcome:
    start = time.monotonic()
    return replace(run(), seconds=time.monotonic() - start)
