"""Whether results stay: those of many calls are held, and looked at again at the end."""

from __future__ import annotations

import time
from random import Random

from opweld.judge.inputs.kinds import Own
from opweld.judge.numerics.outputs import bit_equal, snapshot
from opweld.judge.tree import tensors
from opweld.judge.values import Check
from opweld.judge.verify.run import Run
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.trial import Trial

NAME = "many results stay"
LEAST, MOST = 100, 140
# What all held results may take, and how long the calls; fewer are made where that is not enough.
_MAX_BYTES, _SECONDS = 2**28, 3.0
_NUM_INPUTS = 5


def compare_kept(trial: Trial, own: Own, seed: int) -> Check:
    """Each call's result as it was behind that call, after a number of calls that is drawn."""
    random = Random(stream(seed, NAME))
    count = random.randint(LEAST, MOST)
    started, held_bytes = time.monotonic(), 0
    held: list[tuple[Run, Run]] = []
    while len(held) < count and held_bytes < _MAX_BYTES:
        # in no order: a buffer that is used again would get equal values in a fixed one
        run = trial.run_new(own(random.randrange(_NUM_INPUTS)), NAME, lazy=True)
        if isinstance(run, Check):
            return run
        before = snapshot(run)
        held.append((run, before))
        held_bytes += sum(t.numel() * t.element_size() for t in tensors(before.leaves))
        if time.monotonic() - started > _SECONDS:
            break
    for number, (run, before) in enumerate(held):
        if not bit_equal(run, before):
            behind = f"within {len(held) - number - 1} calls"
            return Check(NAME, False, f"a result is overwritten {behind}", grade="F")
    return Check(NAME, True, f"{len(held)} results stay as they were")
