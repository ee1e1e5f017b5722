"""Running statistics are moved by one kernel for all of a forward, under emulation."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import CountCalls, Pair
from tests.behaviour.products import pair_of_texts, text_of
from tests.emulation.convolution_models import source
from torch import Tensor

MODEL = source(
    """self.one, self.two = nn.BatchNorm1d(5, momentum=0.25), nn.BatchNorm1d(5, momentum=0.25)
    self.three = nn.BatchNorm1d(5, momentum=None)""",
    "return self.three(torch.relu(self.two(torch.tanh(self.one(x)))))",
    "6, 5, 7",
)


def loaded(directory: Path, sound: str = "", broken: str = "") -> Pair:
    text = text_of("running", MODEL, "sm90", mode="training")
    assert sound in text
    return pair_of_texts("running", MODEL, text.replace(sound, broken), 0, directory)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return loaded(tmp_path_factory.mktemp("running"))


def track(pair: Pair) -> Any:
    return pair.models()[1]._opweld.op("opweld_track")


def require_moved(pair: Pair, num: int, num_counts: int) -> None:
    """More statistics than a launch takes, of no element, of one, and of more than a block's."""
    torch.manual_seed(0)
    sizes = [0, 1, 257, 600, *range(2, num - 2)]
    running, towards = ([torch.randn(n) for n in sizes] for _ in range(2))
    counts = [torch.tensor(n) for n in range(num_counts)]
    expected = [x.double() * 0.7 + y.double() * 0.3 for x, y in zip(running, towards, strict=True)]
    shaped = [y.reshape(1, -1, 1, 1) for y in towards]
    assert track(pair)(running, shaped, counts, 0.3)
    found = [x.double() for x in running]
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert [int(n) for n in counts] == [*range(1, num_counts + 1)]


@pytest.mark.parametrize(("num", "num_counts"), [(4, 0), (128, 3), (131, 129), (4, 300)])
def test_all_are_moved(pair: Pair, num: int, num_counts: int) -> None:
    require_moved(pair, num, num_counts)


FAULTS = {
    "a statistic does not stay": ("running[j] * all.stays", "running[j]"),
    "a count is not counted": ("++*all.counts[", "*all.counts["),
    "those of the second launch are the first's": (
        "for (int i = first; i < std::min(first + kMost, num); ++i)",
        "for (int i = 0; i < std::min(kMost, num - first); ++i)",
    ),
    "elements are left out": ("j += 256", "j += 512"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_kernel_fails(fault: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        require_moved(loaded(tmp_path, *FAULTS[fault]), 131, 129)


def test_what_the_kernel_does_not_take_stays(pair: Pair) -> None:
    count, running = torch.tensor(1), torch.ones(4)
    others = {
        "double": torch.ones(4, dtype=torch.double),
        "apart": torch.ones(8)[::2],
        "of another size": torch.ones(5),
    }
    for other in others.values():
        assert not track(pair)([running, other], [torch.zeros(4)] * 2, [count], 0.5)
        assert not track(pair)([running, torch.ones(4)], [torch.zeros(4), other], [count], 0.5)
    assert not track(pair)([running], [torch.zeros(4)], [count.int()], 0.5)
    assert not track(pair)([running], [torch.zeros(4)] * 2, [count], 0.5)
    assert int(count) == 1 and running.tolist() == [1.0] * 4


def buffers(model: Any) -> list[Tensor]:
    return [each.double() for each in model.buffers()]


def test_a_forward_moves_them(pair: Pair) -> None:
    """By the kernel, but those without a momentum."""
    original, new = (model.train() for model in pair.models())
    exact, (x,) = copy.deepcopy(original).double(), pair.inputs(6)
    before = [each._version for each in new.one.buffers()]
    with torch.no_grad():
        for _ in range(2):
            exact(x.double())
            with CountCalls() as calls:
                new(x)
    assert sum("opweld_track" in str(function) for function, _ in calls.ours) == 1
    assert sum("_foreach_mul_" in name for name in calls.others) == 1
    torch.testing.assert_close(buffers(new), buffers(exact), rtol=1e-5, atol=1e-5)
    after = [each._version for each in new.one.buffers()]
    assert all(one < other for one, other in zip(before, after, strict=True))
