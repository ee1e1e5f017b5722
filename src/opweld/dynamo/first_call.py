"""A graph's kernels against the graph itself, on the arguments of its first call.

Weaker than the judge: one draw of inputs, in the process that everything else runs in. What it
leaves behind is nothing: inputs are copies, and the state and the generators are as before.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from opweld.judge.levels import DEFAULT
from opweld.judge.load import Call, seed_all
from opweld.judge.measure.blocks import rolled
from opweld.judge.numerics.compare import are_close, same_bits
from opweld.judge.numerics.outputs import Comparison, bit_equal, mismatch, snapshot
from opweld.judge.numerics.precision import NoReference
from opweld.judge.numerics.reference import Reference
from opweld.judge.tree import tensors
from opweld.judge.verify.run import Overwritten, Run, run
from opweld.judge.verify.weights import state_restored

_SEED = 20
# Of gradients, beside the largest element of each: sums of them are taken in another order.
_NEAR = {torch.float64: 1e-9, torch.float32: 1e-3}
_NEAR_16_BIT = 2e-2


def first_difference(original: nn.Module, new: nn.Module, args: Sequence[Any]) -> str | None:
    """One clause on how a call of `new` differs from one of `original`; None where it is right.

    Results are held to a float64 run of the original, as the judge does, or else to be as close to
    eager's as `torch.testing.assert_close` wants; gradients, where they are asked for, to eager's.
    """
    call, grad = Call(tuple(args), {}), torch.is_grad_enabled()
    with generators_restored():
        clause = _difference(original, new, call)
        asked = (*call.tensors(), *original.parameters()) if grad else ()
        if clause is None and any(t.requires_grad for t in asked):
            clause = _gradients_differ(original, new, call)
    return clause


@contextlib.contextmanager
def generators_restored() -> Iterator[None]:
    """Python's, NumPy's and torch's random states are afterwards as before."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    python, of_numpy = random.getstate(), numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield
    finally:
        random.setstate(python)
        numpy.random.set_state(of_numpy)


def _difference(original: nn.Module, new: nn.Module, call: Call) -> str | None:
    with state_restored(original):
        eager = snapshot(run(original, rolled(call, 0), _SEED, watch_state=True))
    try:
        with state_restored(original):
            found = run(new, rolled(call, 0), _SEED, like=eager, watch_state=True)
            ours = snapshot(found)
    except Overwritten as error:
        return str(error)
    # Dynamo writes into the graph of a call with gradients that regions end with them switched on.
    known = replace(ours, kinds=()) if torch.is_grad_enabled() else ours
    if clause := mismatch(known, eager):
        return clause
    return None if bit_equal(ours, eager) else _errors(original, call, ours, eager)


def _errors(original: nn.Module, call: Call, ours: Run, eager: Run) -> str | None:
    """A clause on errors that are larger than eager's, and not close to it either."""
    coarse = _is_coarse(call)
    if not eager.draws_random:
        comparison = Comparison(eager)
        device = next(iter(tensors(eager.leaves))).device
        reference = Reference(original, device, _SEED, DEFAULT.max_float64)
        try:
            for block in reference.blocks(rolled(call, 0), eager):
                comparison.add(ours, eager, block)
        except NoReference:
            pass
        else:
            check = comparison.check("the first call")
            if check.passed or comparison.close:
                return None
            if not coarse:
                return check.detail
    alike = _is_near_16_bit if coarse else are_close
    for name, left, right in zip(eager.names, ours.leaves, eager.leaves, strict=True):
        if isinstance(right, Tensor) and not alike(left, right):
            return f"{name} is not close to eager's"
    return None


def _is_coarse(call: Call) -> bool:
    """Whether autocast rounds what the graph computes: each side in places of its own."""
    return any(torch.is_autocast_enabled(t.device.type) for t in call.tensors())


def _is_near_16_bit(left: Tensor, right: Tensor) -> bool:
    return _is_near(left, right, _NEAR_16_BIT)


def _gradients_differ(original: nn.Module, new: nn.Module, call: Call) -> str | None:
    of_eager, of_ours = (_gradients(model, original, call) for model in (original, new))
    least = _NEAR_16_BIT if _is_coarse(call) else 0.0
    for number, (left, right) in enumerate(zip(of_ours, of_eager, strict=True)):
        if not _is_near(left, right, least):
            return f"gradient {number} is not near eager's"
    return None


def _gradients(model: nn.Module, original: nn.Module, call: Call) -> list[Tensor | None]:
    """For output gradients that are drawn: of the inputs, then of the parameters."""
    given = [t.requires_grad for t in call.tensors()]
    fresh = rolled(call.map(Tensor.detach), 0)
    for t, wanted in zip(fresh.tensors(), given, strict=True):
        t.requires_grad_(wanted)
    wanted = [t for t in (*fresh.tensors(), *original.parameters()) if t.requires_grad]
    seed_all(_SEED)
    with state_restored(original):
        outputs = [t for t in tensors(model(*fresh.args)) if t.requires_grad]
        seed_all(_SEED)
        ones = [torch.randn_like(t) for t in outputs]
        if not outputs:
            return [None for _ in wanted]
        return list(torch.autograd.grad(outputs, wanted, ones, allow_unused=True))


def _is_near(left: Tensor | None, right: Tensor | None, least: float) -> bool:
    """Within a share of the largest element, `least` or more; a gradient that nothing asks for is
    None or zero.
    """
    if left is None or right is None:
        there = left if right is None else right
        return there is None or not bool(there.any())
    if same_bits(left, right):
        return True
    largest = right.abs().max().double()
    allowed = max(_NEAR.get(right.dtype, _NEAR_16_BIT), least) * largest
    return bool(((left.double() - right.double()).abs() <= allowed).all())
