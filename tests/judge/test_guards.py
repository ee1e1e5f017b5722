"""Memory around inputs and results: what is written there is seen, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.judge.pairs import POINTWISE, named, write_pair
from torch import Tensor

from opweld.judge import Settings, check
from opweld.judge.load import Call
from opweld.judge.verify import guards
from opweld.judge.verify.guards import GuardedInputs, GuardedResults, tight_rows, watched_blocks


@pytest.mark.parametrize(
    ("size", "rows", "num_elems", "extents", "expected"),
    [
        # 192 rows of 520 bytes are 195 blocks of memory
        (96, 96, 96 * 260, [((96, 130), 4)], 192),
        # 128 rows of 4 bytes are one block; 256 are two
        (64, 64, 64 * 2050, [((64,), 4)], 128),
        # no more rows than there are where a row is large
        (8, 8, 2**27, [((8, 2**23 + 32), 4)], 4),
        # both outputs end with their memory
        (10, 10, 100, [((10, 3), 4), ((10, 16), 2)], 128),
        (10, 10, 100, [((3, 4), 4)], 10),
        (None, 0, 4, [((), 4)], 0),
    ],
)
def test_rows_are_such_that_results_fill_their_memory(
    size: int | None, rows: int, num_elems: int, extents: list[guards.Extent], expected: int
) -> None:
    assert tight_rows(size, rows, num_elems, extents) == expected


class Arena:
    """Hands out memory as torch's CUDA allocator does: side by side, in no order."""

    def __init__(self, order: list[int], size: int) -> None:
        self.memory = torch.zeros(size * (max(order) + 1), dtype=torch.uint8)
        self.places = [slice(n * size, (n + 1) * size) for n in order]

    def __call__(self, size: int) -> Tensor:
        return self.memory[self.places.pop()]


def test_free_places_lie_between_watched_blocks() -> None:
    size = 512
    arena = Arena([4, 0, 3, 1, 2], size)
    kept = watched_blocks(size, 5, arena)
    starts = [(block.data_ptr() - arena.memory.data_ptr()) // size for block in kept]
    assert starts == [0, 2, 4]
    assert all(int(block[-1]) == int(block[0]) != 0 for block in kept)


def test_blocks_that_do_not_lie_side_by_side_leave_no_place_between_them() -> None:
    arena = Arena([0, 1, 3, 4, 5], 512)
    kept = watched_blocks(512, 5, arena)
    starts = [(block.data_ptr() - arena.memory.data_ptr()) // 512 for block in kept]
    assert starts == [0, 1, 3, 5], "only between 3 and 5 something may be put"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_blocks_leave_no_place(count: int) -> None:
    assert len(watched_blocks(512, count, Arena([0, 1], 512))) == count


def test_bytes_beside_a_result_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = Arena(list(range(5)), 512)
    results = GuardedResults([], torch.device("cpu"))
    monkeypatch.setattr(results, "_watched", watched_blocks(512, 5, arena))
    assert results.num_changed() == 0
    arena.memory[512:1024] = 1  # the place itself
    assert results.num_changed() == 0
    arena.memory[1024:1027] = 1
    assert results.num_changed() == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_guarded_inputs_have_the_values_and_nan_beside_them(dtype: torch.dtype) -> None:
    x = torch.randint(0, 2, (3, 5)).to(dtype)
    guarded = GuardedInputs(Call((x, 2), {"y": x[:0]}))
    inner = guarded.call.args[0]
    assert torch.equal(inner, x) and inner.dtype == dtype and inner.is_contiguous()
    assert inner.data_ptr() != x.data_ptr() and inner.data_ptr() % 64 == 0
    assert guarded.call.args[1] == 2 and guarded.call.kwargs["y"].shape == (0, 5)
    wider = inner.as_strided((16,), (1,))
    assert wider[15].isnan() if dtype.is_floating_point else wider[15] != 0
    assert guarded.num_changed() == 0
    inner.zero_()
    assert guarded.num_changed() == 0
    wider[15] = 0
    assert guarded.num_changed() == x.element_size()


def test_tensors_with_gaps_stay_as_they_are() -> None:
    x = torch.zeros(4, 4).t()
    assert GuardedInputs(Call((x,), {})).call.args[0] is x


def test_what_writes_beside_its_input_is_caught(tmp_path: Path) -> None:
    """Where there is nothing beside it, torch refuses: it shows in that check alone."""
    new = """
    class ModelNew(Base):
        def forward(self, x):
            y = super().forward(x)
            try:
                x.as_strided((x.numel() + 1,), (1,))[-1] = 0
            except RuntimeError:
                pass
            return y
    """
    settings = Settings(device="cpu", measure=False, seed=1, stop_at_first=False)
    judgement = check(*write_pair(tmp_path, POINTWISE, new), settings)
    assert "4 bytes beside its inputs" in named(judgement, guards.NAME).detail
    assert not judgement.verdict.passed
