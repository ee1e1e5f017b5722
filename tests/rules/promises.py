"""Whether two results differ by no more than a rule may change them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from tests.rules.instances import Instance, instances
from tests.rules.torch_ops import TORCH_DTYPES, run_torch

from opweld.ir.graph import Graph
from opweld.ir.numpy.interpret import interpret
from opweld.ir.ops import Kind
from opweld.ir.rules.pattern import AnyOf
from opweld.ir.rules.rewrite import Numerics, Rule
from opweld.ir.types import DType

GRADIENT_ULPS = 16
"""A derivative by another formula: some roundings more or fewer on either side."""


def broken_values(rule: Rule, dtype: DType) -> Iterator[str]:
    """Where NumPy's results of the two sides differ by more than the rule promises."""
    for case in instances(rule, dtype):
        before, after = (np.asarray(interpret(g, case.feeds)) for g in (case.before, case.after))
        roundings = num_roundings(case.before) + num_roundings(case.after)
        significand = 2.0**-7 if case.before.outputs[0].type.dtype is DType.BF16 else None
        bad = differs(before, after, rule.numerics, roundings, significand)
        yield from _report(rule, case, bad, before, after)


def broken_values_in_torch(rule: Rule, dtype: DType) -> Iterator[str]:
    """The same with PyTorch's own operations, as the text beside a kernel runs them."""
    for case in instances(rule, dtype):
        feeds = as_tensors(case, dtype)
        before, after = (as_array(run_torch(g, feeds)) for g in (case.before, case.after))
        roundings = num_roundings(case.before) + num_roundings(case.after)
        bad = differs(before, after, rule.numerics, roundings)
        yield from _report(rule, case, bad, before, after)


def broken_gradients(rule: Rule, dtype: DType) -> Iterator[str]:
    """Where autograd's derivatives of the two sides differ, at ordinary points."""
    if isinstance(rule.before, AnyOf) and rule.before.kind is Kind.POINTWISE:
        return  # constants have none
    for case in instances(rule, dtype):
        value = as_array(run_torch(case.before, as_tensors(case, dtype)))
        before, after = (gradients(g, case, dtype) for g in (case.before, case.after))
        for expected, got in zip(before, after, strict=True):
            eps = np.finfo(expected.dtype).eps
            tolerance = GRADIENT_ULPS * eps * np.abs(expected) + np.finfo(expected.dtype).tiny
            with np.errstate(all="ignore"):
                bad = np.isfinite(expected) & ~(np.abs(expected - got) <= tolerance)
                bad &= ~some_excepted(case, bad.shape)
                bad &= np.isfinite(value) if _is_of_rows(value, bad.shape) else True
            yield from _report(rule, case, bad, expected, got)


def _is_of_rows(value: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Whether the value has an element for each of this shape, or, reduced, for a row of them."""
    sizes = zip(value.shape, shape, strict=False)
    return value.ndim == len(shape) and all(own in (1, size) for own, size in sizes)


def some_excepted(case: Instance, shape: tuple[int, ...]) -> np.ndarray:
    """Where one of the operands is NaN or subnormal."""
    feeds = [feed for feed in case.feeds.values() if feed.shape == shape and feed.dtype != bool]
    small = [(feed != 0) & (np.abs(feed) < np.finfo(feed.dtype).tiny) for feed in feeds]
    return np.logical_or.reduce([*small, *map(np.isnan, feeds)])


def gradients(graph: Graph, case: Instance, dtype: DType) -> list[np.ndarray]:
    """The derivative of the output, weighted at random, by each input of `dtype`."""
    feeds = as_tensors(case, dtype)
    leaves = [tensor.requires_grad_() for tensor in feeds.values() if tensor.is_floating_point()]
    output = run_torch(graph, feeds)
    if not output.requires_grad:
        return [np.zeros(tuple(leaf.shape), leaf.detach().numpy().dtype) for leaf in leaves]
    weights = torch.from_numpy(np.random.default_rng(5).uniform(0.5, 2, tuple(output.shape)))
    given = torch.autograd.grad(output, leaves, weights.to(output.dtype), allow_unused=True)
    return [
        np.zeros(tuple(leaf.shape), leaf.detach().numpy().dtype) if g is None else g.numpy()
        for g, leaf in zip(given, leaves, strict=True)
    ]


def as_tensors(case: Instance, dtype: DType) -> dict[str, torch.Tensor]:
    return {
        node.attrs.access: torch.from_numpy(case.feeds[node.attrs.access].copy()).to(
            TORCH_DTYPES[node.type.dtype]
        )
        for node in case.before.inputs
    }


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """bfloat16 as float32: it is no NumPy type."""
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def num_roundings(graph: Graph) -> int:
    return sum(node.kind is Kind.POINTWISE for node in graph.nodes())


def differs(
    before: np.ndarray,
    after: np.ndarray,
    numerics: Numerics,
    roundings: int,
    eps: float | None = None,
) -> np.ndarray:
    """Where two arrays are not as close as `numerics` promises.

    A REORDER may move a result by an ulp a rounding, and below the smallest normal number by that.
    """
    assert before.dtype == after.dtype
    assert before.shape == after.shape
    with np.errstate(all="ignore"):
        same = (before == after) | ((before != before) & (after != after))
        if numerics is Numerics.EXACT and np.issubdtype(before.dtype, np.floating):
            signs = np.signbit(before) == np.signbit(after)
            return ~(same & (signs | (before != before)))
        if numerics is not Numerics.REORDER:
            return ~same
        info = np.finfo(before.dtype)
        ulp = (eps or info.eps) * np.maximum(np.abs(before), np.abs(after))
        return ~(same | (np.abs(before - after) <= roundings * ulp + info.tiny))


def _report(rule, case, bad, before, after) -> Iterator[str]:
    for index in np.argwhere(np.atleast_1d(bad))[:3]:
        place = tuple(index) if np.ndim(bad) else ()
        feeds = {k: v[place] if v.shape == np.shape(bad) else "..." for k, v in case.feeds.items()}
        yield f"{rule.name} at {feeds}: {before[place]!r} became {after[place]!r}"
