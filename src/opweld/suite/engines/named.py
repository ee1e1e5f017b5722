"""The engines by their names, made for a piece of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opweld.errors import UserError
from opweld.suite.engines import Engine
from opweld.suite.engines.local import LocalEngine
from opweld.suite.engines.ray import RayEngine
from opweld.suite.engines.slots import AUTO, slots_here
from opweld.suite.engines.slurm import SlurmEngine
from opweld.suite.values import Work

LOCAL, RAY, SLURM = ENGINES = ("local", "ray", "slurm")


@dataclass(frozen=True, slots=True)
class Where:
    """Where a suite runs: `device` is "auto", "cpu" or "cuda", `address` a Ray cluster's, `slurm`
    what a job is submitted with (partition, gres, constraint, ...); the rest as in `slots_here`.
    """

    engine: str = LOCAL
    device: str = AUTO
    jobs: int | None = None
    builders: int | None = None
    address: str | None = None
    slurm: Mapping[str, str] = field(default_factory=dict)


def engine_of(where: Where, work: Work, folder: Path) -> Engine:
    """The engine, started; `folder` is for what it has to keep on a disk.

    Raises:
        UserError: there is no such engine, it is not installed, or it does not start.
    """
    builders = where.builders if work.builds_ahead else 0
    if where.engine == LOCAL:
        return LocalEngine(slots_here(where.device, where.jobs, builders, work.exclusive))
    if where.engine == RAY:
        return RayEngine(where.device, where.jobs, builders, work.exclusive, where.address)
    if where.engine == SLURM:
        return SlurmEngine(folder, where.jobs, where.slurm)
    raise UserError(f"there is no engine {where.engine!r}", next_step=f"use {', '.join(ENGINES)}")
