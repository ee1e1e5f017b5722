"""A graph beside what the rules that change what is computed make of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from tests.rules.linear_graphs import Maker, as_tensors, feeds_of, gradients_of, values_of
from tests.unit.ir.graphs import graph

from opweld.ir.check import check
from opweld.ir.graph import Arena, Graph, Node
from opweld.ir.ops import Op
from opweld.ir.rules.algebra import Algebra
from opweld.ir.rules.costs import NO_COSTS, Costs
from opweld.ir.rules.rewrite import Simplified
from opweld.ir.types import DType
from opweld.simplify import simplify

Form = Callable[[Maker], Node]
NUMPY = {DType.F32: torch.float32, DType.F64: torch.float64}


@dataclass(frozen=True, slots=True)
class Pair:
    """Both graphs, in one dtype."""

    before: Graph
    after: Simplified
    dtype: DType

    @property
    def fired(self) -> set[str]:
        return {name for name, _, _ in self.after.fired}

    @property
    def reasons(self) -> dict[str, str]:
        """By rule why it is not applied, the last place."""
        return {each.rule: each.missed.reason for each in self.after.left}

    def tensors(self, feeds) -> dict[str, torch.Tensor]:
        return as_tensors(feeds, NUMPY[self.dtype])

    def calls(self) -> list[str]:
        """The names of the calls that are left."""
        nodes = [n for n in self.after.graph.nodes() if n.op is Op.CALL]
        return [n.attrs.target.split(".")[1] for n in nodes]


def pair_of(
    form: Form,
    algebra: Algebra = Algebra.EXACT,
    dtype: DType = DType.F64,
    costs: Costs = NO_COSTS,
) -> Pair:
    arena = Arena()
    before = graph(form(Maker(arena, dtype)))
    after = simplify(before, arena, algebra=algebra, costs=costs)
    check(after.graph)
    return Pair(before, after, dtype)


def require_same(pair: Pair, seed: int = 0, gradients: bool = True) -> None:
    """Values and derivatives of ordinary numbers agree up to rounding."""
    near = {"rtol": 1e-9, "atol": 1e-9} if pair.dtype is DType.F64 else {"rtol": 1e-4, "atol": 2e-3}
    feeds = pair.tensors(feeds_of(pair.before, seed))
    both = (values_of(g, feeds) for g in (pair.before, pair.after.graph))
    for expected, got in zip(*both, strict=True):
        np.testing.assert_allclose(got, expected, **near)
    if not gradients:
        return
    expected, got = (gradients_of(g, feeds) for g in (pair.before, pair.after.graph))
    for name, gradient in expected.items():
        np.testing.assert_allclose(got[name], gradient, **near, err_msg=name)


def hard_feeds(before: Graph, seed: int, weights: bool = True) -> dict[str, np.ndarray]:
    """Numbers of one sign in some places, zeros, and a few that are not finite; in weights, if at
    all, in every second draw.
    """
    rng = np.random.default_rng(seed)
    feeds = feeds_of(before, seed)
    for name, values in feeds.items():
        if seed % 3:
            values[..., ::2] = np.abs(values[..., ::2])
        if seed % 5 == 0:
            np.abs(values, out=values)
        values[rng.random(values.shape) < 0.05] = 0.0
        is_input = name.startswith("x")
        if is_input or (weights and seed % 2):
            few = 1 + int(rng.integers(3))
            places = rng.integers(values.size, size=few)
            values.flat[places] = rng.choice([np.inf, -np.inf, np.nan], size=few)
    return feeds


def disagreeing(pair: Pair, seeds=range(40), weights: bool = True) -> list[int]:
    """The seeds for which NaN, infinities or values are neither the original's nor those of its
    float64 run: of zeros that pad a convolution, libraries may leave out what an infinity makes.
    """
    near = {"rtol": 1e-9, "atol": 1e-9} if pair.dtype is DType.F64 else {"rtol": 1e-3, "atol": 1e-2}
    found = []
    for seed in seeds:
        feeds = pair.tensors(hard_feeds(pair.before, seed, weights))
        (expected,), (got,) = (values_of(g, feeds) for g in (pair.before, pair.after.graph))
        same = np.isclose(got, expected, **near, equal_nan=True)
        if not same.all() and pair.dtype is not DType.F64:
            (exact,) = values_of(pair.before, {name: x.double() for name, x in feeds.items()})
            same |= np.isclose(got, exact, **near, equal_nan=True)
        if not same.all():
            found.append(seed)
    return found


def errors(
    form: Form,
    algebra: Algebra,
    draws: int = 12,
    positive: bool = False,
    costs: Costs = NO_COSTS,
) -> list[float]:
    """Root mean squares of the float32 errors against float64: of the original, and of ours."""
    exact = pair_of(form, Algebra.OFF)
    single = pair_of(form, algebra, DType.F32, costs)
    kept: list[list[float]] = [[], []]
    for seed in range(draws):
        feeds = feeds_of(exact.before, seed)
        if positive:
            feeds["x"] = np.abs(feeds["x"])
        rounded = as_tensors(feeds, torch.float32)
        wide = {name: value.double() for name, value in rounded.items()}
        (expected,) = values_of(exact.before, wide)
        for own, each in zip(kept, (single.before, single.after.graph), strict=True):
            own.append(float(np.square(values_of(each, rounded)[0] - expected).mean()))
    return [float(np.sqrt(np.mean(own))) for own in kept]
