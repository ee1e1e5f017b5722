"""Outputs that lie elsewhere are compared in pieces, never whole; draws settle a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from opweld.judge.numerics import compare
from opweld.judge.numerics.outputs import Comparison, bit_equal, mismatch
from opweld.judge.numerics.reference import Block
from opweld.judge.process.leaf import RemoteLeaf
from opweld.judge.verify.run import Run


@dataclass
class Elsewhere:
    """A holder that notes how many elements each fetch takes."""

    held: Tensor
    counts: list[int] = field(default_factory=list)

    def fetch(self, number: int, leaf: int, index: list[Any], count: int, dtype: Any) -> Tensor:
        found = self.held[tuple(s if isinstance(s, int) else slice(*s) for s in index)]
        assert found.numel() == count and found.dtype == dtype
        self.counts.append(count)
        return found.reshape(-1).clone()

    def drop(self, number: int) -> None:
        pass

    def leaf(self) -> RemoteLeaf:
        t = self.held
        return RemoteLeaf(self, 1, 0, t.shape, t.dtype, t.device)


def run_of(leaf: Any) -> Run:
    return Run(("output",), [leaf], [("", "leaf")])


def tensors(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """What ModelNew, eager and float64 say; element [30, 4] of the first is wrong."""
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(40, 7, 5, generator=generator, dtype=torch.float64) * 50
    wide = torch.complex(wide, wide.flip(0)) if dtype.is_complex else wide
    eager = wide.to(dtype)
    new = eager.clone()
    new[30, 4, 2] += 3
    return new, eager, (eager if dtype is torch.int64 else wide)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64])
@pytest.mark.parametrize("by_rows", [False, True])
def test_pieces_give_the_figures_of_the_whole(
    dtype: torch.dtype, by_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, eager, wide = tensors(dtype)
    monkeypatch.setattr(compare, "PIECE_ELEMS", {"cpu": 16})
    elsewhere = Elsewhere(new)
    rows = [slice(0, 18), slice(18, 40)] if by_rows else [None]
    checks = []
    for leaf in (new, elsewhere.leaf()):
        comparison = Comparison(run_of(eager))
        for some in rows:
            part = wide if some is None else wide[some]
            assert not comparison.add(run_of(leaf), run_of(eager), Block(some, [part]))
        comparison.end_draw()
        checks.append(comparison.check("own inputs"))
    assert checks[0] == checks[1]
    assert not checks[0].passed and checks[0].first_bad_index == (30, 4, 2)
    assert max(elsewhere.counts) <= 16 and sum(elsewhere.counts) == new.numel()


def test_bits_and_structure_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PIECE_ELEMS", {"cpu": 16})
    new, eager, _ = tensors(torch.float32)
    right, wrong = Elsewhere(eager.clone()), Elsewhere(new)
    assert mismatch(run_of(right.leaf()), run_of(eager)) is None
    assert "shape" in (mismatch(run_of(Elsewhere(new[:3]).leaf()), run_of(eager)) or "")
    assert not right.counts, "no value is needed for that"
    assert bit_equal(run_of(right.leaf()), run_of(eager))
    assert not bit_equal(run_of(wrong.leaf()), run_of(eager))
    assert max(right.counts + wrong.counts) <= 16


def drawn(scale: float, num_draws: int, shared: bool) -> Comparison:
    """Errors of ModelNew `scale` times eager's; `shared` gives one to all elements of a draw."""
    generator = torch.Generator().manual_seed(1)
    shape = (1,) if shared else (64,)
    comparison = None
    for _ in range(num_draws):
        exact = torch.rand(64, generator=generator, dtype=torch.float64) + 1
        errors = 1e-4 * torch.randn(2, *shape, generator=generator, dtype=torch.float64)
        eager, new = (exact + errors[0]).float(), (exact + scale * errors[1]).float()
        comparison = comparison or Comparison(run_of(eager))
        comparison.add(run_of(new), run_of(eager), Block(None, [exact]))
        comparison.end_draw()
    assert comparison is not None
    return comparison


def test_draws_go_on_while_chance_may_be_to_blame() -> None:
    assert drawn(1.0, 1, shared=False).is_settled
    assert drawn(100.0, 1, shared=False).is_settled, "beyond chance"
    middle = drawn(3.5, 1, shared=False)
    assert not middle.check("own inputs").passed and not middle.is_settled


def test_what_passes_by_an_allowance_is_drawn_again() -> None:
    """Errors that all elements of a draw share: two draws may part by eleven."""
    middle = drawn(6.0, 2, shared=True)
    assert middle.check("own inputs").passed and not middle.is_settled
    assert not drawn(6.0, 16, shared=True).check("own inputs").passed


def test_what_a_later_draw_may_excuse_is_drawn_again() -> None:
    """In the first draw all results are small, and 30 times as wrong as eager's."""
    generator = torch.Generator().manual_seed(1)
    comparison = None
    for scale in (1e-6, 1.0):
        exact = (torch.rand(64, generator=generator, dtype=torch.float64) + 1) * scale
        errors = torch.randn(2, 64, generator=generator, dtype=torch.float64) * 1e-6 * scale
        factor = 30 if scale < 1 else 1
        eager, new = (exact + errors[0]).float(), (exact + factor * errors[1]).float()
        comparison = comparison or Comparison(run_of(eager))
        comparison.add(run_of(new), run_of(eager), Block(None, [exact]))
        comparison.end_draw()
        assert comparison.is_settled is (scale == 1)
    assert comparison is not None and comparison.check("own inputs").passed


def test_what_is_too_large_fails_after_all_draws() -> None:
    assert not drawn(3.5, 16, shared=False).check("own inputs").passed
    assert drawn(1.0, 16, shared=True).check("own inputs").passed
    figures = drawn(1.0, 16, shared=True).sums[0].figures()
    assert figures.freedom is not None and 16 <= figures.freedom < 40 < figures.count


def test_integers_that_an_ulp_tips_are_right_either_way() -> None:
    eager, moved = torch.tensor([1, 2, 3]), torch.tensor([1, 5, 3])
    for new, passes in (([1, 7, 3], True), ([1, 2, 4], False)):
        comparison = Comparison(run_of(eager))
        runs = (run_of(torch.tensor(new)), run_of(eager), run_of(moved))
        comparison.add_noise(*runs, 1.0, [0], num_inputs=3)
        assert comparison.check("constant rows").passed is passes
