"""Sparse tensors as the judge takes them: by what they store."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from opweld.judge.inputs.kinds import NUM_SWAPS, move_by_ulp, swapped, value_kinds
from opweld.judge.inputs.layouts import layout_kinds, sharing_kinds
from opweld.judge.load import Call
from opweld.judge.measure.limits import moved_bytes, touched_bytes
from opweld.judge.measure.required import required
from opweld.judge.numerics.compare import same_bits
from opweld.judge.sparse import deep_copy, dense_parts
from opweld.judge.verify.aliases import overwrite
from opweld.judge.verify.run import fingerprint

LAYOUTS = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def matrix(layout: str, diagonal: int = 0) -> torch.Tensor:
    """Eight elements of 8x8."""
    dense = torch.diag_embed(torch.arange(1.0, 9.0)).roll(diagonal, 0)
    blocks = (2, 2) if "bs" in layout else None
    return dense.to_sparse(layout=getattr(torch, layout), blocksize=blocks)


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


def test_bytes_are_those_that_are_stored(layout: str) -> None:
    t = matrix(layout)
    stored = sum(part.numel() * part.element_size() for part in dense_parts(t))
    assert touched_bytes(t) == stored != t.numel() * t.element_size()
    assert moved_bytes(nn.Module(), Call((t, t), {}), ()) == stored


def test_bits_are_compared_in_values_and_places(layout: str) -> None:
    t = matrix(layout)
    assert same_bits(t, t.clone())
    assert not same_bits(t, matrix(layout, diagonal=1))
    assert not same_bits(t, t.to_dense())
    assert not same_bits(t, t * 2.0)
    assert not same_bits(t, (t.to_dense() * (torch.arange(8) < 7)).to_sparse())


def test_a_fingerprint_tells_of_each_value_and_place(layout: str) -> None:
    t = matrix(layout)
    seen = fingerprint([t])
    assert fingerprint([t.clone()]) == seen
    assert fingerprint([matrix(layout, diagonal=1)]) != seen
    changed = t.clone()
    dense_parts(changed)[-1].view(-1)[-1] += 1e-6
    assert fingerprint([changed]) != seen


def test_a_fingerprint_is_of_the_numbers_however_they_are_listed() -> None:
    t = matrix("sparse_coo")
    order = torch.arange(7, -1, -1)
    listed = torch.sparse_coo_tensor(t.indices()[:, order], t.values()[order], t.shape)
    assert fingerprint([listed]) == fingerprint([t])


def test_overwriting_twice_restores(layout: str) -> None:
    t, kept = matrix(layout), matrix(layout)
    overwrite(t)
    assert not same_bits(t, kept)
    overwrite(t)
    assert same_bits(t, kept)


def test_a_copy_of_a_model_has_memory_of_its_own(layout: str) -> None:
    model = nn.Module()
    model.register_buffer("table", matrix(layout))
    copied = deep_copy(model)
    overwrite(copied.table)
    assert same_bits(model.table, matrix(layout)) and not same_bits(copied.table, model.table)
    if layout != "sparse_coo":
        with pytest.raises(NotImplementedError):  # why it is not torch's
            copy.deepcopy(model)


def own(layout: str, draw: int = 0) -> Call:
    generator = torch.Generator().manual_seed(draw)
    return Call((torch.randn(8, 8, generator=generator), matrix(layout)), {})


def test_other_values_stand_in_the_same_places(layout: str) -> None:
    for kind in value_kinds(lambda draw: own(layout, draw), 3):
        require_other_values(layout, kind.make(0).args[1])


def test_two_stored_elements_are_swapped(layout: str) -> None:
    make = swapped(lambda draw: own(layout, draw), 3)
    made = [make(draw).args[1] for draw in range(NUM_SWAPS)]
    changed = [t for t in made if not same_bits(t, matrix(layout))]  # zeros of a block are alike
    assert changed
    for t in changed:
        require_other_values(layout, t)
        assert torch.equal(t.to_dense().sum(), matrix(layout).to_dense().sum())


def require_other_values(layout: str, t: torch.Tensor) -> None:
    *places, values = dense_parts(t)
    *wanted, kept = dense_parts(matrix(layout))
    assert t.layout is getattr(torch, layout)
    assert all(map(torch.equal, places, wanted)) and not torch.equal(values, kept)


def test_an_ulp_is_one_of_each_value(layout: str) -> None:
    t = matrix(layout)
    moved, kept = dense_parts(move_by_ulp(t))[-1], dense_parts(t)[-1]
    assert torch.equal(moved != kept, kept != 0)
    torch.testing.assert_close(moved, kept, rtol=2e-7, atol=0)


def test_layouts_are_tried_on_the_others(layout: str) -> None:
    kinds = layout_kinds(lambda draw: own(layout, draw), 3)
    assert kinds and not sharing_kinds(lambda draw: own(layout, draw))
    for kind in kinds:
        dense, sparse = kind.make(0).args
        assert same_bits(sparse, matrix(layout))
        assert not dense.is_contiguous() or dense.data_ptr() % 16 or dense.storage_offset()


class Multiplies(nn.Module):
    def forward(self, x, table):
        return table @ x


def test_a_sparse_product_needs_no_operations_of_a_dense_one() -> None:
    needed = required(Multiplies(), lambda: own("sparse_coo"), 0, outputs_may_stay=False)
    assert needed.num_bytes > 0 and needed.flops == 0
