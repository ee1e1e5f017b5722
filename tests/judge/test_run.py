"""One call of one side: what it changed, what it left, and memory filled beforehand."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
import torch
from torch import nn

from opweld.judge.load import Call
from opweld.judge.numerics import compare
from opweld.judge.verify.run import (
    Overwritten,
    _add_checksum,
    _add_sums,
    _numpy_state,
    filled_memory,
    fingerprint,
    of_outputs,
    run,
)

SUMS = [_add_checksum, _add_sums]


@pytest.mark.parametrize("add", SUMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.uint8])
def test_a_changed_or_swapped_element_changes_the_sums(add: Callable, dtype: torch.dtype) -> None:  # type: ignore[type-arg]
    x = torch.arange(1000).remainder(251).to(dtype)
    before = add((0, 0), x)
    assert add((0, 0), x.clone()) == before
    for position in (0, 255, 256, 767, 768, 999):
        y = x.clone()
        y[position] += 1
        assert add((0, 0), y) != before
    for left, right in ((0, 1), (0, 256), (3, 700), (998, 999), (5, 999)):
        y = x.clone()
        y[left], y[right] = x[right], x[left]
        assert add((0, 0), y) != before


def test_fingerprints_see_signed_zeros_and_the_last_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PIECE_ELEMS", {"cpu": 16})
    x = torch.zeros(10, 10)
    y = x.clone()
    y[-1, -1] = -0.0
    assert fingerprint([x]) != fingerprint([y])
    assert fingerprint([x.t(), 3, None]) == fingerprint([x.clone()])
    assert len(fingerprint([torch.ones(2, dtype=torch.complex64), torch.tensor(True)])) == 2
    assert len(fingerprint([torch.empty(0)])) == 1
    assert fingerprint([torch._neg_view(x)]) == fingerprint([-x])
    assert fingerprint([torch.ones(1, 9)[:, 3]]) == fingerprint([torch.ones(1)])


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.add_(1) * torch.rand(())


def test_a_run_lists_outputs_changed_inputs_and_changed_state() -> None:
    call = Call((torch.zeros(2),), {})
    first = run(Counting(), call, seed=0, watch_state=True)
    assert first.names == ("output", "input 0 afterwards", "state calls")
    assert first.changed_inputs == (0,) and first.changed_state == ("calls",)
    assert first.draws_random
    assert [leaf.tolist() for leaf in first.leaves[1:]] == [[1.0, 1.0], 1.0]
    again = run(Counting(), Call((torch.zeros(2),), {}), seed=0)
    assert torch.equal(first.leaves[0], again.leaves[0])


def test_changes_beyond_the_originals_raise() -> None:
    x = torch.ones(3)
    like = run(nn.Identity(), Call((x,), {}), seed=0, watch_state=True)
    with pytest.raises(Overwritten, match="writes to its input 0"):
        run(Counting(), Call((x,), {}), seed=0, like=like, watch_state=True)


def test_uninitialised_memory_is_filled_inside_only() -> None:
    with filled_memory():
        assert torch.empty(1000).isnan().all()
        assert (torch.empty(1000, dtype=torch.int32) == torch.iinfo(torch.int32).max).all()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    "change",
    [
        lambda: numpy.random.rand(),  # the place in its array
        lambda: numpy.random.seed(6),  # the array
        lambda: numpy.random.set_state((*numpy.random.get_state()[:3], 1, 0.5)),  # a kept normal
    ],
)
def test_every_part_of_numpys_state_counts(change: Callable[[], object]) -> None:
    state = numpy.random.get_state()
    try:
        numpy.random.seed(5)
        before = _numpy_state()
        numpy.random.seed(5)
        assert _numpy_state() == before
        change()
        assert _numpy_state() != before
    finally:
        numpy.random.set_state(state)


class SwitchesOn(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return super().forward(x)


def test_a_result_tells_whether_it_requires_gradients_unasked() -> None:
    model, call = SwitchesOn(3, 2), Call((torch.randn(4, 3),), {})
    with torch.no_grad():
        timed = of_outputs(model(*call.args))
    found = run(model, call, seed=0)
    assert found.kinds == timed.kinds and "requires gradients" in found.kinds[0]
    assert run(model, call, seed=0, grad=True).kinds == ("",)
    assert run(nn.Linear(3, 2), call, seed=0).kinds == ("",)
