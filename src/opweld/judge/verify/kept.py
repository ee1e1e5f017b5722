"""Whether results stay: behind many other calls, and when what they were made of is overwritten."""

from __future__ import annotations

import time
from random import Random

from torch import Tensor

from opweld.judge.inputs.kinds import Own
from opweld.judge.numerics.compare import same_bits
from opweld.judge.numerics.outputs import bit_equal, dense, snapshot
from opweld.judge.tree import tensors
from opweld.judge.values import Check
from opweld.judge.verify import aliases
from opweld.judge.verify.run import Run, outputs_of
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.trial import Trial
from opweld.judge.verify.weights import copy_state

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


def shared_with(trial: Trial, own: Own) -> tuple[str, ...] | Check:
    """What each output changes with when it is overwritten behind the call: an input, the state.

    Who overwrites and reads is the referee, where the inputs are in memory that it shares.
    """
    call = own(0)
    run = trial.run_new(call, aliases.NAME, lazy=True)
    if isinstance(run, Check):
        return run
    outputs, side = outputs_of(run), trial.pair.new
    before, found = snapshot(outputs), list[str]()
    for position in range(len(call.tensors())):
        side.overwrite(position)
        found += _changed(outputs, before, f"input {position}")
        side.overwrite(position)
    state = trial.pristine or copy_state(trial.pair.original)
    if 0 < sum(t.numel() * t.element_size() for t in state.values()) <= _MAX_BYTES:
        other = {name: t.clone() for name, t in state.items()}
        for t in other.values():
            aliases.overwrite(t)
        side.load_state(other)
        found += _changed(outputs, before, aliases.STATE)
        side.load_state(state)
    return tuple(found)


def _changed(outputs: Run, before: Run, what: str) -> list[str]:
    """A line for each output that is not what it was."""
    pairs = zip(outputs.names, outputs.leaves, before.leaves, strict=True)
    return [
        f"{name} shares memory with {what}"
        for name, leaf, old in pairs
        if isinstance(old, Tensor) and not same_bits(dense(leaf), dense(old))
    ]
