"""The original lowered to a format: the standard of `--precision`, and the marks to name one by."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.load import Call
from opweld.judge.numerics.effective import Lowered, Lowering, run_lowered
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
    """The run whose leaves are, one by one, those with the larger error against float64, as far as
    both that and the first run are finite. What rounding made infinite or NaN is no error to be
    held to.
    """
    leaves = list(one.leaves)
    rows = slice(None) if block.rows is None else block.rows
    for position, leaf in enumerate(block.leaves):
        left, right = as_tensor(one.leaves[position]), as_tensor(other.leaves[position])
        if is_float(left) and left.shape == right.shape and left.dim() > 0:
            exact = as_tensor(leaf, torch.float64).double()
            exact = exact.masked_fill(~left[rows].isfinite(), math.inf)
            finite = (right[rows].isfinite() | ~exact.isfinite()).all()
            if finite and squared_error(right, rows, exact) > squared_error(left, rows, exact):
                leaves[position] = other.leaves[position]
    return replace(one, leaves=leaves)


def squared_error(leaf: Tensor, rows: slice, reference: Tensor) -> float:
    """The sum of squared errors where both are finite; infinite where only the leaf is not."""
    value = (leaf[rows] if leaf.dim() else leaf).double()
    finite = reference.isfinite()
    return float(torch.where(finite, value - reference, 0.0).square().nan_to_num(math.inf).sum())


def _same_float(eager: Any, lowered: Any) -> bool:
    both = isinstance(eager, Tensor) and isinstance(lowered, Tensor)
    return (
        both and is_float(eager) and eager.dtype == lowered.dtype and eager.shape == lowered.shape
    )
