"""The original run once more so that its own error shows: on what it is given moved by a rounding,
or in a lower precision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from opweld.judge.inputs.kinds import move_by_ulp
from opweld.judge.load import Call
from opweld.judge.numerics.outputs import is_float
from opweld.judge.numerics.precision import FLOAT32, NoReference
from opweld.judge.verify.run import Run, collect, run


def shaken_run(model: nn.Module, call: Call, seed: int, grad: bool, like: Run) -> Run:
    """The original with its inputs and parameters moved by an ulp."""
    with moved_weights(model):
        return run(model, call.map(move_by_ulp), seed, grad, like)


@contextlib.contextmanager
def moved_weights(model: nn.Module) -> Iterator[None]:
    """Every parameter is moved by an ulp; 8-bit ones, which have no arithmetic, stay.

    Other memory is put in their place, so that nothing is written to what may be shared.
    """
    floats = (p for p in model.parameters() if is_float(p) and p.element_size() > 1)
    kept = [(p, p.data) for p in floats]
    try:
        for number, (parameter, data) in enumerate(kept, 1):
            parameter.data = move_by_ulp(data, number)
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data


def narrow_run(model: nn.Module, call: Call, seed: int, like: Run) -> Run | None:
    """The original in float32, as far as that works."""
    narrow, given = FLOAT32.model(model), call.map(FLOAT32.fresh)
    try:
        outputs = FLOAT32.run(narrow, given, seed)
    except NoReference:
        return None
    leaves = collect(outputs, given, narrow, like.changed_inputs, like.changed_state)
    return replace(like, leaves=leaves)
