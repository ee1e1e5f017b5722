"""Gradients of both sides for the same random output gradients, against float64.

A ModelNew without gradients is for inference only, and the check says so; one with wrong gradients
fails.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from opweld.judge.load import NEW, ORIGINAL, Call, Pair, brief, is_device_lost
from opweld.judge.numerics.differentiate import gradients
from opweld.judge.numerics.effective import Lowered, Lowering, allowed_in
from opweld.judge.numerics.lowered import larger_error
from opweld.judge.numerics.outputs import Comparison, bit_equal, mismatch
from opweld.judge.numerics.precision import FLOAT64, NoReference
from opweld.judge.numerics.reference import Block
from opweld.judge.process.side import Raised
from opweld.judge.values import Check
from opweld.judge.verify.inputs import move_by_ulp
from opweld.judge.verify.run import Run
from opweld.judge.verify.trial import DeviceLost, Phase

NAME = "gradients"


def compare_gradients(
    pair: Pair,
    call: Call,
    seed: int,
    phase: Phase,
    note: str = "",
    lowering: Lowering | None = None,
) -> Check:
    """The gradients of every floating-point input and parameter.

    With `lowering`, their errors may be those of the original lowered so; without, as large as
    torch's flags allow those of convolutions to be.
    """
    phase(ORIGINAL, NAME)
    try:
        eager = gradients(pair.original, call, seed)
    except Exception as error:
        return _skipped(f"the original has none: {brief(error, 160)}", error)
    phase(NEW, NAME)
    try:
        new = pair.new.gradients(call, seed, eager)
    except Raised as error:
        check = Check(NAME, True, f"ModelNew is for inference only: {error}", skipped=True)
        if error.lost:
            raise DeviceLost(check) from error
        return check
    if clause := mismatch(new, eager):
        return Check(NAME, False, f"ModelNew: {clause}", grade="F")
    if bit_equal(new, eager):
        return Check(NAME, True, "bit-equal to eager" + (f", {note}" if note else ""), grade="A")
    if lowering:
        with Lowered(lowering):
            eager = gradients(pair.original, call, seed, like=eager)
    return _graded(pair, call, seed, new, eager, note, lowered=lowering is not None)


def _allowed_run(pair: Pair, call: Call, seed: int, eager: Run) -> Run | None:
    lowering = allowed_in(pair.device)
    if lowering is None:
        return None
    with Lowered(lowering) as mode:
        found = gradients(pair.original, call, seed, like=eager)
    return found if mode.acted else None


def _graded(
    pair: Pair, call: Call, seed: int, new: Run, eager: Run, note: str, lowered: bool
) -> Check:
    comparison = Comparison(eager)
    wide = FLOAT64.model(pair.original)

    def forward(wide_call: Call) -> Any:
        return FLOAT64.run(wide, wide_call, seed, grad=True)

    allowed = None if lowered else _allowed_run(pair, call, seed, eager)
    try:
        exact = gradients(wide, call.map(FLOAT64.tensor), seed, like=eager, forward=forward)
        block = Block(None, exact.leaves)
        held_to = eager if allowed is None else larger_error(eager, allowed, block)
        if useless := comparison.add(new, held_to, block):
            comparison.no_reference = "float64 is not more precise"
            shaken = gradients(pair.original, call.map(move_by_ulp), seed, like=eager)
            comparison.add_noise(new, eager, shaken, 1.0, sorted(useless), num_inputs=0)
    except (NoReference, RuntimeError) as reason:
        return Check(NAME, True, f"no float64 gradients: {reason}", skipped=True)
    return _lenient(comparison.check(NAME, note), comparison.close)


def _lenient(check: Check, close: bool) -> Check:
    """A derivative is the same by several formulas of different accuracy: grade C will do.

    In 16 bits these part beyond it, so that there a gradient fails when half its digits are lost.
    """
    if check.passed:
        return check
    kept = False
    if check.dtype in ("float16", "bfloat16") and check.error_vs_f64 and check.scale:
        eps = torch.finfo(getattr(torch, check.dtype)).eps
        kept = check.error_vs_f64.rms <= math.sqrt(eps) * check.scale
    return replace(check, passed=True, grade="C") if close or kept else check


def _skipped(detail: str, error: Exception | None = None) -> Check:
    check = Check(NAME, True, detail, skipped=True)
    if error is not None and is_device_lost(error):
        raise DeviceLost(check) from error
    return check
