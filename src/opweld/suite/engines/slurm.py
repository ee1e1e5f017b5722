"""A Slurm cluster, by submitit: a job for each task, on whatever the scheduler finds for it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from opweld.errors import UserError
from opweld.judge.values import from_plain, to_plain
from opweld.suite.optional import optional
from opweld.suite.values import BUILD, INTERRUPTED, NODE_LOST, Outcome, Slot, Task
from opweld.suite.worker.gpus import visible_gpus
from opweld.suite.worker.supervisor import Supervisor

# Of submitit: this machine's processes in the place of a cluster's jobs.
CLUSTER = "cluster"
_JOBS = 8
_LOOK_S = 0.1
_MINUTE_S = 60.0
# Beyond the work's own limit: to start, and to wait for the lock of a device.
_SPARE_S = 600.0


class SlurmEngine:
    """`jobs` are submitted at once; `given` is what submitit takes (`slurm_partition`, ...), with
    or without `slurm_` in front, and `cluster` in the place of what it finds.

    Raises:
        UserError: submitit is not installed, or refuses a parameter.
    """

    name = "slurm"

    def __init__(self, folder: Path, jobs: int | None, given: Mapping[str, str]) -> None:
        parameters = dict(given)
        cluster = parameters.pop(CLUSTER, None)
        submitit = optional("submitit", "--engine slurm", "slurm")
        try:
            self._executor = submitit.AutoExecutor(folder / "jobs", cluster=cluster)
            self._update(parameters)
        except (NameError, RuntimeError, ValueError, TypeError) as error:
            raise UserError(
                f"--slurm cannot be that: {' '.join(str(error).split())}",
                next_step="give what submitit takes, such as --slurm partition=gpu",
            ) from error
        self._slots = tuple(Slot(f"job{n}", "slurm", any_gpu=True) for n in range(jobs or _JOBS))
        self._given, self._excluded = parameters, set[str]()
        self._cancelled = set[str]()
        self._jobs: dict[str, tuple[Any, Task, Slot]] = {}

    def slots(self) -> tuple[Slot, ...]:
        return self._slots

    def submit(self, task: Task, slot: Slot) -> None:
        limit_s = task.work.limit_s + _SPARE_S
        asked = {"timeout_min": str(int(limit_s / _MINUTE_S) + 1)} | self._given
        if task.unit.gpu and task.phase != BUILD:
            asked["gres"] = f"gpu:{task.unit.gpu.lower()}:1"
        if self._excluded:
            asked["exclude"] = ",".join(sorted(self._excluded))
        self._update(asked)
        job = self._executor.submit(run_alone, json.dumps(to_plain([task, slot])))
        self._jobs[task.id] = (job, task, slot)

    def finished(self, wait_s: float) -> list[Outcome]:
        until = time.monotonic() + wait_s
        while True:
            done = [name for name, (job, _, _) in self._jobs.items() if job.done()]
            if done or time.monotonic() > until:
                return [self._outcome(*self._jobs.pop(name)) for name in done]
            time.sleep(_LOOK_S)

    def cancel(self, task: str) -> None:
        if task in self._jobs:
            self._cancelled.add(task)
            self._jobs[task][0].cancel(check=False)

    def set_aside(self, slot: Slot, node: str) -> None:
        """Later jobs keep off the node: Slurm gives a GPU of it to whom it likes."""
        self._excluded.add(node)

    def close(self) -> None:
        for job, _, _ in self._jobs.values():
            job.cancel(check=False)
        for job, _, _ in self._jobs.values():
            _wait(job)

    def _update(self, given: Mapping[str, str]) -> None:
        general = ("timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "name")
        named = {
            key if key in general or key.startswith(("slurm_", "local_")) else f"slurm_{key}": value
            for key, value in given.items()
        }
        self._executor.update_parameters(
            **{key: int(value) if value.isdecimal() else value for key, value in named.items()}
        )

    def _outcome(self, job: Any, task: Task, slot: Slot) -> Outcome:
        if task.id in self._cancelled:
            self._cancelled.remove(task.id)
            return Outcome(task.id, slot.id, fault=INTERRUPTED, node=slot.node)
        try:
            return from_plain(Outcome, json.loads(job.result()))
        except Exception as error:  # submitit raises what the job raised, and its own
            detail = f"job {job.job_id}, {job.state}: {' '.join(str(error).split())}"[:300]
            return Outcome(task.id, slot.id, fault=NODE_LOST, detail=detail, node=slot.node)


def run_alone(text: str) -> str:
    """In a job: one task, on the GPU that the scheduler gave it, if any."""
    task, slot = json.loads(text)
    gpu = next(iter(visible_gpus()), None)
    supervisor = Supervisor(replace(from_plain(Slot, slot), gpu=gpu))
    try:
        return json.dumps(to_plain(supervisor.run(from_plain(Task, task))))
    finally:
        supervisor.end()


def _wait(job: Any, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not job.done() and time.monotonic() < until:
        time.sleep(_LOOK_S)
