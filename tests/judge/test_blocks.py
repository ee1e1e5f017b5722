"""Inputs that no call has seen before, and blocks of calls on them."""

from __future__ import annotations

import pytest
import torch
from tests.judge.fake_sides import FakeClock
from torch import nn

from opweld.judge.load import Call
from opweld.judge.measure import blocks
from opweld.judge.measure.blocks import LocalTimed, compact, num_rolls, rolled
from opweld.judge.measure.clock import WallClock


def test_floats_roll_along_the_first_and_the_last_dimension() -> None:
    x = torch.arange(6.0).view(2, 3)
    (moved,) = rolled(Call((x,), {}), 3).tensors()
    assert moved.tolist() == [[5.0, 3.0, 4.0], [2.0, 0.0, 1.0]]
    assert moved.data_ptr() != x.data_ptr() and x[0, 0] == 0
    (vector,) = rolled(Call((torch.arange(4.0),), {}), 6).tensors()
    assert vector.tolist() == [2.0, 3.0, 0.0, 1.0]


def test_every_offset_gives_other_inputs() -> None:
    call = Call((torch.arange(12.0).view(4, 3), torch.arange(5)), {})
    assert num_rolls(call) == 12
    seen = {tuple(rolled(call, n).tensors()[0].flatten().tolist()) for n in range(12)}
    assert len(seen) == 12
    assert num_rolls(Call((torch.arange(5),), {})) == 1


def test_integers_and_single_numbers_stay_in_memory_of_their_own() -> None:
    index, scale = torch.arange(4), torch.tensor(2.0)
    moved = rolled(Call((index,), {"scale": scale}), 3)
    assert moved.args[0].tolist() == [0, 1, 2, 3] and moved.kwargs["scale"] == 2
    assert moved.args[0].data_ptr() != index.data_ptr()


def test_layouts_and_sharing_stay() -> None:
    wide = torch.randn(1, 4).expand(3, 4)
    turned = torch.randn(4, 6).t()
    moved = rolled(Call((wide, turned, turned), {}), 7)
    assert moved.args[0].stride() == (0, 1) and moved.args[0].shape == (3, 4)
    assert moved.args[1].stride() == turned.stride()
    assert moved.args[1] is moved.args[2]
    assert torch.equal(moved.args[1], torch.roll(turned, (7 % 6, 7 // 6), (0, 1)))
    assert compact(wide).shape == (1, 4) and compact(turned) is turned


class Recorder(nn.Module):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock, self.seen = clock, []

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.clock.ms += 2.0
        self.seen.append(x.tolist())
        return {"y": x.add_(1.0)}


def test_a_block_calls_once_for_each_entry_and_keeps_the_outputs() -> None:
    clock = FakeClock()
    model = Recorder(clock)
    side = LocalTimed(model, WallClock(clock))
    pool = torch.arange(3.0)
    side.prepare([Call((pool,), {})])
    side.arm([(0, 1), (0, 0), (0, 2)])
    assert side.block(run=False) == [0.0, 0.0, 0.0] and not model.seen
    assert side.block(run=True) == [pytest.approx(2.0)] * 3
    assert model.seen == [[2, 0, 1], [0, 1, 2], [1, 2, 0]]
    run = side.result(1)
    assert run.names == ("output['y']",) and run.leaves[0].tolist() == [1.0, 2.0, 3.0]
    assert pool.tolist() == [0.0, 1.0, 2.0], "the pool is not written to"
    side.release()
    with pytest.raises(IndexError):
        side.result(1)


def test_timed_calls_have_no_gradients() -> None:
    side = LocalTimed(nn.Linear(3, 2), WallClock())
    side.prepare([Call((torch.ones(4, 3),), {})])
    side.arm([(0, 0)])
    side.block(run=True)
    assert not side.result(0).leaves[0].requires_grad


def test_memory_for_results_is_had_before_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU; here the sizes that are asked for tell."""
    clock, asked = FakeClock(), list[int]()

    class Twice(Recorder):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = super().forward(x)["y"]
            return y, y[1:], torch.zeros(5, dtype=torch.float64), torch.eye(2).to_sparse()

    model = Twice(clock)
    side = LocalTimed(model, WallClock(clock))
    side.prepare([Call((torch.arange(3.0),), {})])
    side.arm([(0, 1)])
    assert not model.seen
    monkeypatch.setattr(blocks, "_is_on_gpu", lambda call: True)
    monkeypatch.setattr(
        blocks, "_EMPTY", lambda size, **kwargs: asked.append(size) or torch.empty(size, **kwargs)
    )
    side.arm([])
    assert not model.seen and not asked
    side.arm([(0, 1), (0, 2)])
    assert len(model.seen) == 1 and sorted(asked) == [12, 12, 40, 40]
    assert side.block(run=True) == [pytest.approx(2.0)] * 2


def test_an_element_is_held_back_until_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads the inputs before the flush is over (here, at once) meets a NaN."""
    model = Recorder(FakeClock())
    side = LocalTimed(model, WallClock())
    x = torch.arange(5.0)
    side.prepare([Call((x,), {})])
    monkeypatch.setattr(blocks, "_is_held_back", torch.is_floating_point)
    side.arm([(0, 0), (0, 1)])
    early = [call.args[0] for call, _ in side._armed]
    for _ in range(2):
        assert [t.isnan().tolist().index(True) for t in early] == [2, 2]
        side.block(run=False)
    side.block(run=True)
    assert model.seen == [[0, 1, 2, 3, 4], [4, 0, 1, 2, 3]]
    assert not x.isnan().any()
