"""Gradients of both sides for the same random output gradients, against float64.

A ModelNew without gradients is for inference only, and the check says so; one with wrong gradients
fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.inputs import move_by_ulp
from opweld.judge.load import NEW, ORIGINAL, Call, Pair, brief, place, seed_all
from opweld.judge.outputs import Comparison, bit_equal, mismatch
from opweld.judge.precision import FLOAT64, NoReference
from opweld.judge.reference import Block
from opweld.judge.run import Run, synchronize
from opweld.judge.tree import tensors
from opweld.judge.trial import DeviceLost, Phase, is_device_lost
from opweld.judge.values import Check

NAME = "gradients"


class NoGradients(Exception):
    """Nothing in the outputs depends differentiably on an input or parameter."""


def compare_gradients(pair: Pair, call: Call, seed: int, phase: Phase, note: str = "") -> Check:
    """The gradients of every floating-point input and parameter."""
    phase(ORIGINAL, NAME)
    try:
        eager = _gradients(pair.original, call, seed)
    except Exception as error:
        return _skipped(f"the original has none: {brief(error, 160)}", error)
    phase(NEW, NAME)
    try:
        new = _gradients(pair.new, call, seed, like=eager)
    except NoGradients:
        return _skipped("ModelNew is for inference only: its outputs carry no gradients")
    except Exception as error:
        where = place(pair.new_path, error)
        return _skipped(f"ModelNew is for inference only: {where}: {brief(error, 160)}", error)
    if clause := mismatch(new, eager):
        return Check(NAME, False, f"ModelNew: {clause}", grade="F")
    if bit_equal(new, eager):
        return Check(NAME, True, "bit-equal to eager" + (f", {note}" if note else ""), grade="A")
    return _graded(pair, call, seed, new, eager, note)


def _graded(pair: Pair, call: Call, seed: int, new: Run, eager: Run, note: str) -> Check:
    comparison = Comparison(eager)
    wide = FLOAT64.model(pair.original)

    def forward(wide_call: Call) -> Any:
        return FLOAT64.run(wide, wide_call, seed, grad=True)

    try:
        exact = _gradients(wide, call.map(FLOAT64.tensor), seed, like=eager, forward=forward)
        if useless := comparison.add(new, eager, Block(None, exact.leaves)):
            comparison.no_reference = "float64 is not more precise"
            shaken = _gradients(pair.original, call.map(move_by_ulp), seed, like=eager)
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


def _gradients(
    model: nn.Module,
    call: Call,
    seed: int,
    like: Run | None = None,
    forward: Callable[[Call], Any] | None = None,
) -> Run:
    """One leaf for each input and parameter that the outputs depend on.

    With `like`, exactly those of that run; one that is missing here raises.
    """
    given = call.map(_with_grad)
    seed_all(seed)
    with torch.enable_grad():
        outputs = forward(given) if forward else model(*given.args, **given.kwargs)
        ends = [t for t in tensors(outputs) if t.requires_grad]
        if not ends:
            raise NoGradients
        named = dict(_named_leaves(model, given))
        found = torch.autograd.grad(
            ends, list(named.values()), _end_gradients(ends, seed), allow_unused=True
        )
    synchronize()
    return _as_run(dict(zip(named, found, strict=True)), named, like)


def _as_run(found: dict[str, Tensor | None], named: dict[str, Tensor], like: Run | None) -> Run:
    """Leaves by name; an unused leaf has a gradient of zeros where the other side uses it."""
    names = (
        like.names if like else tuple(k for k, gradient in found.items() if gradient is not None)
    )
    leaves = []
    for name in names:
        gradient = found.get(name)
        leaves.append(torch.zeros_like(named[name]) if gradient is None else gradient)
    return Run(names=names, leaves=leaves, nesting=[("", "leaf")])


def _named_leaves(model: nn.Module, call: Call) -> list[tuple[str, Tensor]]:
    inputs = [(f"gradient of input {i}", t) for i, t in enumerate(call.tensors())]
    parameters = [(f"gradient of {name}", p) for name, p in model.named_parameters()]
    return [(name, t) for name, t in (*inputs, *parameters) if t.requires_grad]


def _with_grad(t: Tensor) -> Tensor:
    differentiable = t.is_floating_point() or t.is_complex()
    return t.detach().clone().requires_grad_(differentiable)


def _end_gradients(ends: list[Tensor], seed: int) -> list[Tensor]:
    """The same random numbers for every precision: drawn in float32, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(t.shape, generator=generator) for t in ends]
    # rounded to eight bits, so that every dtype holds them exactly
    return [
        g.bfloat16().to(device=t.device, dtype=t.dtype) for g, t in zip(drawn, ends, strict=True)
    ]


def _skipped(detail: str, error: Exception | None = None) -> Check:
    check = Check(NAME, True, detail, skipped=True)
    if error is not None and is_device_lost(error):
        raise DeviceLost(check) from error
    return check
