"""The original lowered to a format: the standard of `--precision`, and the marks to name one by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.load import Call
from opweld.judge.numerics.effective import Lowered, Lowering, Observation, narrower, run_lowered
from opweld.judge.numerics.outputs import as_tensor, is_float
from opweld.judge.numerics.reference import Block
from opweld.judge.verify.run import Run, collect


def lowered_run(model: nn.Module, call: Call, seed: int, eager: Run, lowering: Lowering) -> Run:
    """The original's run with its floating-point leaves those of the lowered one."""
    return _run_under(Lowered(lowering), model, call, seed, eager)


def allowed_run(
    model: nn.Module, call: Call, seed: int, eager: Run, lowering: Lowering
) -> Run | None:
    """The same; None where there is nothing in the model that the lowering is about."""
    mode = Lowered(lowering)
    found = _run_under(mode, model, call, seed, eager)
    return found if mode.acted else None


def _run_under(mode: Lowered, model: nn.Module, call: Call, seed: int, eager: Run) -> Run:
    given = call.map(torch.clone)
    outputs = run_lowered(model, given, seed, mode)
    found = collect(outputs, given, model, eager.changed_inputs, eager.changed_state)
    pairs = zip(eager.leaves, found, strict=True)
    return replace(eager, leaves=[low if _same_float(e, low) else e for e, low in pairs])


def larger_error(one: Run, other: Run, block: Block) -> Run:
    """The run whose leaves are, one by one, those with the larger error against float64. What
    rounding made infinite or NaN is no error to be held to.
    """
    leaves = list(one.leaves)
    rows = slice(None) if block.rows is None else block.rows
    for position, leaf in enumerate(block.leaves):
        left, right = as_tensor(one.leaves[position]), as_tensor(other.leaves[position])
        if is_float(left) and left.shape == right.shape and left.dim() > 0:
            exact = as_tensor(leaf, torch.float64).double()
            finite = (right[rows].isfinite() | ~exact.isfinite()).all()
            if finite and _square(right, rows, exact) > _square(left, rows, exact):
                leaves[position] = other.leaves[position]
    return replace(one, leaves=leaves)


def observe(
    model: nn.Module,
    call: Call,
    seed: int,
    eager: Run,
    blocks: Sequence[Block],
    rounded: Iterable[Block],
    position: int,
    rms: float,
) -> Observation:
    """ModelNew's rms error in one output beside those that lowered originals make there.

    `blocks` are of the float64 run, `rounded` the same with every result rounded to float32.
    """
    leaf = as_tensor(eager.leaves[position])
    runs = [
        (lowering.name, lowered_run(model, call, seed, eager, lowering))
        for lowering in narrower(leaf.dtype)
    ]
    squares, count = [0.0] * (len(runs) + 1), 0
    for block in blocks:
        reference = as_tensor(block.leaves[position], torch.float64).double()
        rows = slice(None) if block.rows is None else block.rows
        for number, (_, run) in enumerate([*runs, ("", eager)]):
            squares[number] += _square(as_tensor(run.leaves[position]), rows, reference)
        count += reference.numel()
    errors = [math.sqrt(square / max(1, count)) for square in squares]
    marks: dict[str, tuple[float, ...]] = {}
    for (name, _), error in zip(runs, errors, strict=False):
        marks[name] = (*marks.get(name, ()), error)
    own = _rms_between(blocks, rounded, position) if leaf.dtype is torch.float32 else 0.0
    return Observation(rms, marks, eager_rms=errors[-1], rounded_rms=own)


def _rms_between(blocks: Iterable[Block], others: Iterable[Block], position: int) -> float:
    square, count = 0.0, 0
    for block, other in zip(blocks, others, strict=True):
        reference = as_tensor(block.leaves[position], torch.float64).double()
        square += _square(as_tensor(other.leaves[position]), slice(None), reference)
        count += reference.numel()
    return math.sqrt(square / max(1, count))


def _square(leaf: Tensor, rows: slice, reference: Tensor) -> float:
    """The sum of squared errors where both are finite; infinite where only the leaf is not."""
    value = (leaf[rows] if leaf.dim() else leaf).double()
    finite = reference.isfinite()
    return float(torch.where(finite, value - reference, 0.0).square().nan_to_num(math.inf).sum())


def _same_float(eager: Any, lowered: Any) -> bool:
    both = isinstance(eager, Tensor) and isinstance(lowered, Tensor)
    return (
        both and is_float(eager) and eager.dtype == lowered.dtype and eager.shape == lowered.shape
    )
