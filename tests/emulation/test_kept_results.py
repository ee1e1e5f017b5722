"""Reductions of a weight alone keep their results: they follow its changes, and only then run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.emulation.operators import emulated_kernels, load_operators
from tests.unit.plan.plans import Make, graph

from opweld.ir.graph import Graph
from opweld.ir.kernels.shared import sharing
from opweld.ir.original import Part
from opweld.ir.plan import Conditions
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.host.texts import host
from opweld.target import CPU, SM_90A, Target

ROWS, COLUMNS = 640, 512
UNCACHED = Conditions(weight_cache=False)
_numbers = count()


def moments(m: Make, shape: tuple[int, ...], axis: int) -> Graph:
    """The sum along an axis of a weight, and where all elements are positive."""
    w = m.w("fc.weight", *shape)
    least = m.reduced("amin", m.sign(w), axis)
    return graph(m.reduced("sum", m.mul(w, 0.125), axis), m.where(m.eq(least, 1.0), least, 0.0))


def expected(w: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    least = w.sign().amin(axis, keepdim=True)
    total = (w.double() / 8).sum(axis, keepdim=True).float()
    return total, torch.where(least == 1, least, torch.zeros(()))


@dataclass
class Operator:
    call: Callable[..., Any]
    library: ctypes.CDLL
    axis: int

    def check(self, w: torch.Tensor) -> None:
        for got, wanted in zip(self.call(w), expected(w.detach(), self.axis), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)

    def set(self, name: str, value: int) -> None:
        getattr(self.library, f"set_{name}")(ctypes.c_int64(value))


def operator(axis: int, shape: tuple[int, ...] = (ROWS, COLUMNS)) -> Operator:
    plan = make_plan(moments(Make(), shape, axis), SM_90A)
    (group,) = (each for each in plan.groups if each.fused)
    assert group.kept
    kernels = lower(plan)
    text = emulated_kernels(render("kept", kernels, "cuda").text)
    part = Part(None, plan, kernels)  # type: ignore[arg-type]
    main = host(sharing((part,)), "cuda").text
    ops, library = load_operators(text, main, instance=next(_numbers) + 1)
    return Operator(getattr(ops, group.name), library, axis)


@pytest.fixture(params=[0, 1], ids=["columns", "rows"])
def kept(request) -> Iterator[Operator]:
    found = operator(request.param)
    yield found
    found.set("capturing", 0)
    found.set("stream", 0)


def behind_the_back(w: torch.Tensor, value: float) -> None:
    """Changes one element that no sample is taken of, without a count."""
    address = w.data_ptr() + 4 * (COLUMNS * 3 + 1)
    ctypes.cast(address, ctypes.POINTER(ctypes.c_float))[0] = value


def test_results_are_those_of_the_weight(kept: Operator) -> None:
    w = torch.randn(ROWS, COLUMNS)
    w[:, 5] = w[:, 5].abs()
    w[7] = w[7].abs()
    for _ in range(3):
        kept.check(w)


def test_unchanged_weights_are_not_reduced_twice(kept: Operator) -> None:
    """Nobody can see a change of one element that is no sample: so nothing was computed."""
    w = torch.randn(ROWS, COLUMNS)
    before = [each.clone() for each in kept.call(w)]
    behind_the_back(w, 1e6)
    assert all(map(torch.equal, kept.call(w), before))
    w.add_(0.0)  # a change that is counted
    kept.check(w)


@torch.no_grad()
def test_changes_are_followed(kept: Operator) -> None:
    w = torch.nn.Parameter(torch.randn(ROWS, COLUMNS))
    kept.check(w)
    w.mul_(2.0)
    kept.check(w)
    w.data.normal_()  # no count moves
    kept.check(w)
    w.data = torch.randn(ROWS, COLUMNS)
    kept.check(w)
    layer = torch.nn.Linear(COLUMNS, ROWS)
    kept.check(layer.weight)
    layer.load_state_dict({k: v * 3 for k, v in layer.state_dict().items()})
    kept.check(layer.weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    layer.weight.grad = torch.randn(ROWS, COLUMNS)
    optimizer.step()
    kept.check(layer.weight)


def test_results_are_the_caller_s(kept: Operator) -> None:
    """Fresh at each call: what the caller writes is not kept, and no later call writes there."""
    w = torch.randn(ROWS, COLUMNS)
    first = kept.call(w)
    copies = [each.clone() for each in first]
    for each in kept.call(w):
        each.zero_()
    kept.check(w)
    kept.check(torch.randn(ROWS, COLUMNS))
    assert all(map(torch.equal, first, copies))


def test_weights_take_turns(kept: Operator) -> None:
    weights = [torch.randn(ROWS, COLUMNS) for _ in range(6)]
    for w in (*weights, *weights):
        kept.check(w)


def test_nan_and_infinities(kept: Operator) -> None:
    w = torch.randn(ROWS, COLUMNS)
    w[3, 4], w[9, 9], w[100, 100] = float("nan"), float("inf"), -float("inf")
    for _ in range(2):
        total, _ = kept.call(w)
        wanted, _ = expected(w, kept.axis)
        torch.testing.assert_close(total, wanted, rtol=1e-5, atol=1e-4, equal_nan=True)


def test_other_layouts_are_not_kept(kept: Operator) -> None:
    wide = torch.randn(COLUMNS, ROWS).t()
    kept.check(wide)
    behind = wide[2, 3].item()
    wide.t().data[3, 2] = behind + 100.0
    kept.check(wide)


def test_while_a_graph_is_captured(kept: Operator) -> None:
    w, new = torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)
    kept.check(w)
    kept.set("capturing", 1)
    kept.check(w)  # what is kept is used
    kept.check(new)  # nothing new is kept
    w.mul_(3.0)
    kept.check(w)
    kept.set("capturing", 0)
    kept.check(w)
    kept.check(new)


def test_streams_wait_for_each_other(kept: Operator) -> None:
    w = torch.randn(ROWS, COLUMNS)
    for stream in (0, 1, 1, 0):
        kept.set("stream", stream)
        kept.check(w)
    function = kept.library.num_waits
    function.restype = ctypes.c_int64
    assert function() == 2


def test_unchanged_split_reductions_do_not_run() -> None:
    """Few long rows are cut, and put together by a second kernel."""
    found = operator(1, (4, 2**18))
    w = torch.randn(4, 2**18)
    found.check(w)
    found.check(w)
    w.mul_(-0.5)
    found.check(w)


@pytest.mark.parametrize(
    ("shape", "target", "conditions"),
    [
        ((8, 8), SM_90A, Conditions()),
        ((ROWS, COLUMNS), SM_90A, UNCACHED),
        ((ROWS, COLUMNS), CPU, Conditions()),
    ],
    ids=["a small weight", "without a cache", "on the CPU"],
)
def test_where_nothing_is_kept(shape, target: Target, conditions: Conditions) -> None:
    plan = make_plan(moments(Make(), shape, 0), target, conditions=conditions)
    assert not any(group.kept for group in plan.groups)


def test_inputs_are_not_kept() -> None:
    m = Make()
    plan = make_plan(graph(m.reduced("sum", m.x("x", ROWS, COLUMNS), 0)), SM_90A)
    assert not any(group.kept for group in plan.groups)


def test_a_check_that_never_looks_is_caught() -> None:
    """With a wrong answer of the device the results would be old ones."""
    plan = make_plan(moments(Make(), (ROWS, COLUMNS), 0), SM_90A)
    kernels = lower(plan)
    text = render("kept", kernels, "cuda").text
    wrong = text.replace("*stale = any;", "*stale = any && head->known == 0;")
    assert wrong != text
    main = host(sharing((Part(None, plan, kernels),)), "cuda").text  # type: ignore[arg-type]
    ops, library = load_operators(emulated_kernels(wrong), main, instance=next(_numbers) + 1)
    (group,) = (each for each in plan.groups if each.fused)
    found = Operator(getattr(ops, group.name), library, 0)
    w = torch.randn(ROWS, COLUMNS)
    found.check(w)
    w.data.normal_()
    with pytest.raises(AssertionError):
        found.check(w)


def test_libraries_share_the_stacks_of_their_threads() -> None:
    """A process may have 65,530 mappings: with stacks of its own each library took 2,000."""
    weight = torch.randn(ROWS, COLUMNS)
    operator(0).check(weight)
    before = len(Path("/proc/self/maps").read_text().splitlines())
    operator(0).check(weight)
    assert len(Path("/proc/self/maps").read_text().splitlines()) - before < 200
