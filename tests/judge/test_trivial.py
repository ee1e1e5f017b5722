"""Candidates that compute nothing: which pass, piece by piece and block by block."""

from __future__ import annotations

import pytest
import torch

from opweld.judge.numerics import compare
from opweld.judge.numerics.reference import Block
from opweld.judge.verify.run import Run
from opweld.judge.verify.trivial import COPY, MEAN, OTHER, ROLLED, ZEROS, Trivial, unjudged


def run_of(*leaves: torch.Tensor) -> Run:
    return Run(tuple(f"output[{i}]" for i in range(len(leaves))), list(leaves), [("", "leaf")])


def survivors(
    value: torch.Tensor, inputs: list[torch.Tensor] | None = None, other: Run | None = None
) -> set[str]:
    trivial = Trivial(run_of(value), inputs or [], other)
    trivial.add(Block(None, [value.double()]))
    return {name for _, name in trivial.survivors}


X = torch.randn(20, 30, generator=torch.Generator().manual_seed(0))


def test_ordinary_outputs_leave_none() -> None:
    assert survivors(X.tanh(), [X], run_of(X.flip(0).tanh())) == set()


@pytest.mark.parametrize("limit", [7, 2**19])
def test_each_candidate_passes_where_it_is_right(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "PIECE_ELEMS", {"cpu": limit})
    assert survivors(torch.zeros(20, 30)) == {ZEROS, MEAN, ROLLED}
    assert survivors(torch.full((20, 30), 0.7)) == {MEAN, ROLLED}
    assert survivors(X.clone(), [X * 2, X]) == {f"{COPY} 1"}
    assert survivors(X[:1].repeat(20, 1)) == {ROLLED}
    assert survivors(X.clone(), other=run_of(X.clone())) == {OTHER}
    assert survivors(torch.arange(5) * 0) == {ZEROS, ROLLED}


def test_a_late_element_refutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PIECE_ELEMS", {"cpu": 7})
    value = torch.zeros(20, 30)
    value[-1, -1] = 1e-3
    assert survivors(value) == set()
    trivial = Trivial(run_of(value), [])
    for start in (0, 15):
        rows = slice(start, start + (15 if not start else 5))
        assert {name for _, name in trivial.survivors} >= {ZEROS}
        trivial.add(Block(rows, [value[rows].double()]))
    assert not trivial.survivors


def test_tiny_values_are_no_zeros() -> None:
    """The tolerance follows the values: 1e-30 is judged as 1 is."""
    assert survivors(X * 1e-30) == set()


def test_one_sentence_stands_for_what_says_the_same() -> None:
    left = {("output", name) for name in (ZEROS, MEAN, ROLLED)}
    assert unjudged(left) == ("output: zeros would pass every check",)
    assert unjudged([]) == ()
