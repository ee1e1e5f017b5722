"""The inputs that are made: values, sizes and layouts, the model's integers and scalars kept."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from opweld.judge.inputs.distributions import infinite_rows
from opweld.judge.inputs.kinds import NUM_SWAPS, swapped, value_kinds
from opweld.judge.inputs.layouts import (
    EXPANDED,
    ONE_STRIDED,
    layout_kinds,
    sharing_kinds,
    weight_kinds,
    with_weight,
)
from opweld.judge.inputs.sizes import batch_kinds, inner_kinds
from opweld.judge.load import Call
from opweld.judge.verify.seeds import stream


def own(draw: int = 0) -> Call:
    generator = torch.Generator().manual_seed(draw)
    x = torch.rand(16, 70, generator=generator)
    return Call((x, torch.arange(16), 2.5), {"flags": [x[:, 0] > 0.5, torch.ones(70)]})


VALUES = {kind.name: kind for kind in value_kinds(own, seed=5)}
LAYOUTS = {kind.name: kind for kind in layout_kinds(own, 3)}


@pytest.mark.parametrize("name", VALUES)
def test_values_vary_by_draw_and_repeat_for_the_same(name: str) -> None:
    first, again, other = (VALUES[name].make(draw).tensors() for draw in (0, 0, 1))
    assert torch.equal(first[0].nan_to_num(7), again[0].nan_to_num(7))
    assert not torch.equal(first[0].nan_to_num(7), other[0].nan_to_num(7))
    assert torch.equal(first[1], torch.arange(16)) and first[2].dtype is torch.bool
    assert VALUES[name].make(0).args[2] == 2.5
    assert not any(t is u for t, u in zip(first, own().tensors(), strict=True))


def test_two_elements_change_places() -> None:
    for draw in range(3):
        before, after = own(0).tensors()[0], swapped(own, seed=5)(draw).tensors()[0]
        assert (before != after).sum() == 2
        assert torch.equal(before.flatten().sort().values, after.flatten().sort().values)
    first, again = (swapped(own, seed=5)(0).tensors() for _ in range(2))
    assert not torch.equal(first[0], swapped(own, seed=5)(1).tensors()[0])
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], torch.arange(16))
    later = swapped(own, seed=5)(NUM_SWAPS).tensors()[0]
    assert (own(NUM_SWAPS).tensors()[0] != later).sum() == 2, "more draws have other values"
    single = swapped(lambda draw: Call((torch.ones(1), torch.ones(0, 3)), {}), seed=5)(0)
    assert torch.equal(single.args[0], torch.ones(1))


def test_values_have_their_range() -> None:
    normal = VALUES["normal values"].make(0).tensors()[0]
    assert normal.mean().abs() < 0.1 and 0.9 < normal.std() < 1.1
    large = VALUES["large values"].make(0).tensors()[0]
    assert 900 < large.std() < 1100
    tiny = VALUES["tiny values"].make(0).tensors()[0].abs()
    assert tiny.max() < 1e-5
    subnormal = (tiny > 0) & (tiny < torch.finfo(torch.float32).smallest_normal)
    assert subnormal.sum() > 0.05 * tiny.numel()


def values(name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    call = Call((torch.zeros(shape, dtype=dtype),), {})
    kinds = {kind.name: kind for kind in value_kinds(lambda draw: call, seed=5)}
    return kinds[name].make(0).tensors()[0]


def test_positive_values() -> None:
    x = values("positive values", (50, 40))
    assert bool((x > 0).all()) and 0.7 < x.mean() < 0.9


def test_sparse_values_are_zeros_of_both_signs() -> None:
    x = values("sparse values", (100, 100))
    zero = x == 0
    assert 0.88 < zero.double().mean() < 0.92
    assert 0.4 < x.signbit()[zero].double().mean() < 0.6
    assert 0.9 < x[~zero].std() < 1.1


def test_constant_rows_have_exact_sums() -> None:
    x = values("constant rows", (20, 30))
    assert bool((x == x[:, :1]).all()) and x[:, 0].unique().numel() > 15
    assert torch.equal(x.sum(1).double(), x.double().sum(1))


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e6), (torch.float16, 8188.0)])
def test_one_element_of_each_row_is_huge(dtype: torch.dtype, size: float) -> None:
    x = values("one huge element", (40, 30), dtype)
    huge = x.abs() > 100
    assert bool((huge.sum(1) == 1).all()) and huge.any(0).sum() > 10
    assert bool((x[huge].abs() == size).all()) and len(x[huge].unique()) == 2


def test_streams_have_nothing_in_common() -> None:
    seeds = {stream(seed, *names) for seed in (0, 1) for names in (("a",), ("b",), ("a", 0))}
    assert len(seeds) == 6 and all(0 <= s < 2**63 for s in seeds)
    first, other = (value_kinds(own, seed)[0].make(0).tensors()[0] for seed in (5, 6))
    moved = value_kinds(own, 5)[0].make(1).tensors()[0]
    assert not torch.equal(first, other) and not torch.equal(first, moved)
    drawn = torch.empty(16, 70).normal_(generator=torch.Generator().manual_seed(5))
    assert not torch.equal(first, drawn)


def special(*shape: int) -> torch.Tensor:
    call = Call((torch.rand(shape),), {})
    kinds = {kind.name: kind for kind in value_kinds(lambda draw: call, seed=5)}
    return kinds["NaN, infinities, signed zeros"].make(0).tensors()[0]


def test_special_values_come_one_to_a_row() -> None:
    x = special(200, 70)
    assert x.isnan().any() and x.isposinf().any() and x.isneginf().any()
    assert ((x == 0) & x.signbit()).any()
    odd = ~x.isfinite() | (x.abs() < 1e-30)
    assert odd.sum(1).max() == 1 and (odd.sum(1) == 0).sum() == 150
    assert odd[:, -1].any(), "the last column is where tails are"


def test_a_single_row_has_them_all_after_a_nan() -> None:
    x = special(1000)
    assert x[3].isnan() and x[:3].isfinite().all()
    assert x.isposinf().any() and x.isneginf().any()
    assert special(2).isnan().any()


def test_one_element_of_the_first_tensor_is_the_largest_number() -> None:
    call = Call((torch.arange(3), torch.rand(20, 7), torch.rand(20, 7)), {})
    kinds = {kind.name: kind for kind in value_kinds(lambda draw: call, seed=5)}
    _, first, second = kinds["the largest number"].make(0).tensors()
    assert (first == (2 - 2**-10) * 2.0**127).sum() == 1  # of TF32, too
    assert first.abs().view(-1).sort().values[-2] < 10 and second.abs().max() < 10


def test_sixteen_bit_values_stay_in_range() -> None:
    half = Call((torch.rand(8, 8).half(),), {})
    for kind in value_kinds(lambda draw: half, seed=0)[:3]:
        assert kind.make(0).tensors()[0].isfinite().all()


def test_no_value_kinds_without_floating_point_inputs() -> None:
    assert value_kinds(lambda draw: Call((torch.arange(3),), {}), seed=0) == ()


@pytest.mark.parametrize(("position", "rows"), list(enumerate([1, 3, 17, 0])))
def test_sizes_repeat_own_rows_in_all_that_share_the_leading_size(position: int, rows: int) -> None:
    kind = batch_kinds(own, 3)[position]
    assert kind.name == f"batch of {rows}"
    x, indices, flags, row = kind.make(0).tensors()
    assert x.shape == (rows, 70) and flags.shape == (rows,) and row.shape == (70,)
    assert indices.tolist() == [i % 16 for i in range(rows)]
    assert torch.equal(x, own().tensors()[0][indices])


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_keep_the_values(name: str) -> None:
    for made, given in zip(LAYOUTS[name].make(0).tensors(), own().tensors(), strict=True):
        # expanded ones are those of the last dimension's first element
        expected = given[..., :1].expand_as(given) if name == EXPANDED else given
        assert torch.equal(made, expected) and made.dtype == given.dtype


def test_layouts_are_what_they_are_called() -> None:
    x = LAYOUTS["transposed storage"].make(0).tensors()[0]
    assert x.stride() == (1, 16)
    x = LAYOUTS["strided storage"].make(0).tensors()[0]
    assert x.stride() == (140, 2)
    assert math.isnan(torch.as_strided(x, (1,), (1,), 1).item()), "what lies between is poison"
    x = LAYOUTS["misaligned storage"].make(0).tensors()[0]
    assert x.storage_offset() == 1 and x.is_contiguous() and x.data_ptr() % 16 != 0
    x = LAYOUTS["padded rows"].make(0).tensors()[0]
    assert x.stride(1) == 1 and x.stride(0) > 70
    assert math.isnan(torch.as_strided(x, (1,), (1,), 70).item())
    x = LAYOUTS["storage with an offset"].make(0).tensors()[0]
    assert x.storage_offset() > 1 and x.is_contiguous()
    strides = [kind.make(0).tensors()[0].stride() for kind in layout_kinds(own, 3)]
    assert (0, 1) in strides and (1, 0) in strides
    image = Call((torch.rand(2, 3, 4, 5),), {})
    made = {kind.name: kind for kind in layout_kinds(lambda draw: image, 3)}
    last = made["channels-last storage"].make(0).tensors()[0]
    assert last.is_contiguous(memory_format=torch.channels_last)
    orders = [k.make(0).tensors()[0] for k in layout_kinds(lambda draw: image, 3)]
    assert any(t.stride() == (20, 40, 5, 1) for t in orders)
    assert all(torch.equal(t, image.args[0]) for t in orders if 0 not in t.stride())


def test_each_input_is_strided_by_itself() -> None:
    kinds = [kind for kind in layout_kinds(own, 3) if kind.name == ONE_STRIDED]
    dense = [[t.is_contiguous() for t in kind.make(0).tensors()] for kind in kinds]
    count = len(own().tensors())
    assert sorted(dense) == [[n != each for n in range(count)] for each in range(count)]
    assert not _names_of_one_strided(lambda draw: Call((torch.rand(4, 5),), {}))


def _names_of_one_strided(given: Callable[[int], Call]) -> list[str]:
    return [kind.name for kind in layout_kinds(given, 3) if kind.name == ONE_STRIDED]


def test_inputs_share_memory_where_two_are_alike() -> None:
    x, y = torch.rand(4, 3), torch.rand(4, 3)
    twice, overlapping = sharing_kinds(lambda draw: Call((x, torch.ones(4), y), {}))
    first, _, second = twice.make(0).tensors()
    assert first is second and torch.equal(first, x)
    first, _, second = overlapping.make(0).tensors()
    assert torch.equal(first, x) and torch.equal(second, torch.cat([x[1:], y[-1:]]))
    assert second.data_ptr() - first.data_ptr() == 3 * 4
    assert sharing_kinds(lambda draw: Call((x, torch.rand(4, 4)), {})) == ()


def test_a_weight_stands_where_an_input_with_rows_like_its_own_did() -> None:
    layer = torch.nn.Linear(3, 5)
    for batch, rows in ((4, 4), (5, 5), (9, 5)):
        given = Call((torch.rand(batch), torch.rand(batch, 3)), {})
        (kind,) = weight_kinds(lambda draw, given=given: given, layer)
        beside, x = kind.make(0).tensors()
        assert beside.shape == (rows,) and torch.equal(x, layer.weight[:rows])
        assert kind.manner.weight == "weight"
        _, placed = with_weight(kind.make(0), layer.weight).tensors()
        assert placed.data_ptr() == layer.weight.data_ptr() and placed.shape == (rows, 3)
    layer.weight = torch.nn.Parameter(torch.ones(()))
    assert weight_kinds(lambda draw: Call((torch.rand(4, 7),), {}), layer) == ()
    assert weight_kinds(lambda draw: Call((torch.rand(4, 3).int(),), {}), layer) == ()


def test_drawn_batches_are_even_odd_and_whole_blocks() -> None:
    for seed in range(40):
        for size in (1, 5, 32, 96):
            made = batch_kinds(lambda draw, n=size: Call((torch.rand(n, 3),), {}), seed)  # type: ignore[misc]
            sizes = [kind.make(0).tensors()[0].shape[0] for kind in made]
            drawn = [n for n in sizes if n not in (0, 1, 3, size + 1)]
            assert size not in sizes
            assert any(n % 32 == 0 for n in drawn) and any(n % 2 == 0 for n in drawn)
            assert any(n % 2 for n in sizes if n > 3), sizes


def test_inner_sizes_change_together_in_all_tensors() -> None:
    x = torch.rand(8, 6, 6)
    call = Call((x, torch.arange(6), torch.rand(8, 5)), {})
    made = [kind.make(0).tensors() for kind in inner_kinds(lambda draw: call, 2)]
    assert {kind.may_refuse for kind in inner_kinds(lambda draw: call, 2)} == {True}
    for first, row, other in made:
        assert first.shape[0] == other.shape[0] == 8
        assert first.shape[1] == first.shape[2] == row.shape[0]
        assert (first.shape[1] == 6) != (other.shape[1] == 5)
        assert row.max() < 6 and torch.equal(first[:, :1, :1], x[:, :1, :1])
    assert len({tuple(t.shape for t in tensors) for tensors in made}) == len(made) >= 2


def test_whole_rows_are_infinite() -> None:
    for shape in ((5, 7), (2, 3, 7)):
        x = infinite_rows(torch.zeros(shape), torch.Generator())
        rows = x.reshape(-1, 7)
        assert (rows[0] == -torch.inf).all() and (rows[2] == torch.inf).all()
        assert rows.isinf().sum() == 14
    assert (infinite_rows(torch.zeros(1, 7), torch.Generator()) == -torch.inf).all()
    for left_alone in (torch.zeros(()), torch.zeros(0, 3), torch.zeros(2, dtype=torch.complex64)):
        assert infinite_rows(left_alone, torch.Generator()) is left_alone
