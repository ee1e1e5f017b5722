"""The slots of one machine: one for each GPU that measures, and processors that build for them."""

from __future__ import annotations

import os
import platform

from opweld.errors import UnsupportedTarget, UserError
from opweld.suite.values import BUILD, MEASURE, Gpu, Slot
from opweld.suite.worker.gpus import visible_gpus

CPU, AUTO = "cpu", "auto"
ALONE = (
    "times on a CPU are taken one at a time; do several at once without times by --no-measure, "
    "or of optimize by --no-check"
)
# Builders that keep a GPU busy: a build takes about as long as what it is built for is measured.
_BUILDERS_PER_GPU = 2


def slots_here(
    device: str = AUTO,
    jobs: int | None = None,
    builders: int | None = None,
    exclusive: bool = True,
) -> tuple[Slot, ...]:
    """What this machine offers to work that has its device to itself (`exclusive`), or shares it.

    Args:
        device: "auto" is every GPU that is visible, or the processors where there is none.
        jobs: how many units at once; None is one for each GPU, one for processors that are timed,
            and otherwise one for each processor.
        builders: processes that build ahead of the GPUs; None is two for each GPU, and as many as
            there are processors at most.

    Raises:
        UserError: more than one is to be timed at once on the processors.
        UnsupportedTarget: a GPU is asked for, and there is none.
    """
    gpus = () if device == CPU else visible_gpus()
    if not gpus and device not in (AUTO, CPU):
        raise UnsupportedTarget(
            "this machine has no GPU that its driver lists", next_step="use --target cpu"
        )
    return slots_of(platform.node(), gpus, num_processors(), jobs, builders, exclusive)


def slots_of(
    node: str,
    gpus: tuple[Gpu, ...],
    processors: int,
    jobs: int | None,
    builders: int | None,
    exclusive: bool,
) -> tuple[Slot, ...]:
    """The same for any node."""
    if gpus:
        used = gpus[:jobs]
        num = min(_BUILDERS_PER_GPU * len(used), processors) if builders is None else builders
        measuring = [Slot(f"{node}/{gpu.uuid}", node, (MEASURE,), gpu) for gpu in used]
        return (*measuring, *_building(node, num))
    if exclusive and (jobs or 1) > 1:
        raise UserError(f"--jobs cannot be {jobs} here", next_step=ALONE)
    num = 1 if exclusive else jobs or processors
    threads = 0 if exclusive else max(1, processors // num)
    measuring = [Slot(f"{node}/cpu{n}", node, (MEASURE,), threads=threads) for n in range(num)]
    return (*measuring, *_building(node, builders or 0))


def _building(node: str, number: int) -> list[Slot]:
    return [Slot(f"{node}/build{n}", node, (BUILD,), threads=1) for n in range(number)]


def num_processors() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))
