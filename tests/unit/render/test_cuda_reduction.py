"""The CUDA text of reductions: what it holds, what it compiles, what it launches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from unittest import mock

import pytest
from tests.unit.plan.plans import BATCH, Make, plan_of

from opweld.ir.attrs import CastAttrs
from opweld.ir.expr import symbol
from opweld.ir.graph import Node
from opweld.ir.ops import Op
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.render import render
from opweld.render.cuda import texts as cuda

LENGTH = symbol("s1")


@pytest.fixture(autouse=True)
def own_kernels() -> Iterator[None]:
    """Also of groups that the skeleton would run (test_reduce_rows.py)."""
    with mock.patch.object(cuda, "is_row_functor", lambda _: False):
        yield


def text_of(*outputs: Node) -> str:
    return render("case", lower(plan_of(*outputs)), "cuda").text


def function(text: str, role: str) -> str:
    """The device function of a role, to its end."""
    found = re.search(rf"OPWELD_FN[^{{;]*_contiguous_{role}\(.*?^}}", text, re.S | re.M)
    assert found, role
    return found[0]


def instances(text: str, variant: str = "contiguous") -> list[tuple[int, int, int, str]]:
    """Threads or strips, items, lanes and index of each instance that a variant may launch."""
    found = re.findall(rf"\w+_{variant}_launch<(\d+), (\d+), (\d+), (\w+)>", text)
    each = dict.fromkeys((int(t), int(i), int(n), index) for t, i, n, index in found)
    return list(each)


def test_every_entry_is_defined_once() -> None:
    m = Make()
    x = m.x("x", BATCH, 1000)
    for outputs in ((m.softmax(x, 1),), (m.reduced("sum", m.x("y", 1 << 20), 0),)):
        source = render("case", lower(plan_of(*outputs)), "cuda")
        defined = re.findall(r'extern "C" \w+ (\w+)\(', source.text)
        assert sorted(defined) == sorted(source.entry_points)


def test_memory_is_read_once_where_a_row_fits_into_registers() -> None:
    m = Make()
    text = text_of(m.softmax(m.x("x", BATCH, 1000), 1))
    assert len(re.findall(r"load_vector<kLanes>\(&x\[", text)) == 1
    for walk in ("pass0", "pass1", "pass2"):
        assert "packet.x_1.lane[lane]" in function(text, walk)
    assert (32, 8, 4, "uint32_t") in instances(text)


def test_what_one_walk_reads_is_not_kept() -> None:
    m = Make()
    x, weight = m.x("x", BATCH, 1000), m.x("weight", 1000)
    text = text_of(m.mul(m.standardised(x, 1), weight))
    assert "weight" not in function(text, "load")
    assert "load_vector<kLanes>(&weight[" in function(text, "pass2")


def test_the_only_walk_loads_several_packets_before_it_folds_one() -> None:
    m = Make()
    text = text_of(m.reduced("sum", m.mul(m.x("x", BATCH, 1000), m.x("y", 1000)), 1))
    assert "&x[" in function(text, "load") and "&y[" in function(text, "load")
    assert "load_vector" not in function(text, "pass0")
    assert {items for _, items, *_ in instances(text)} == {0}


def test_stores_move_packets() -> None:
    m = Make()
    along, across = m.x("x", BATCH, 1000), m.x("x", BATCH, 10, 64)
    for x in (along, across):
        assert "op::store_vector(&result[" in function(text_of(m.softmax(x, 1)), "pass2")


@pytest.mark.parametrize(
    ("length", "team", "items"),
    [
        *((128, 16, 2), (132, 16, 3), (256, 16, 4), (1024, 32, 8), (1028, 128, 3)),
        *((8192, 256, 8), (8196, 512, 5), (1 << 21, 512, 0)),
    ],
)
def test_a_known_length_compiles_its_own_instance_only(length: int, team: int, items: int) -> None:
    m = Make()
    found = instances(text_of(m.softmax(m.x("x", BATCH, length), 1)))
    assert [(t, i) for t, i, lanes, index in found if lanes == 4 and index == "uint32_t"] == [
        (team, items)
    ]
    assert len(found) == 4


def test_registers_for_more_operands_are_shared() -> None:
    """What a thread keeps stays within 32 registers."""
    m = Make()
    operands = [m.x(name, BATCH, LENGTH * 4) for name in "xyz"]
    for count in (1, 2, 3):
        mixed = operands[0]
        for other in operands[1:count]:
            mixed = m.mul(mixed, other)
        items = max(items for _, items, *_ in instances(text_of(m.softmax(mixed, 1))))
        assert items == {1: 8, 2: 4, 3: 2}[count]


def test_sixteen_bit_rows_have_eight_lanes_and_fewer_items() -> None:
    m = Make()
    half = m.x("x", BATCH, LENGTH * 8, dtype=DType.BF16)
    wide = m.arena.make(Op.CAST, half, attrs=CastAttrs(DType.F32))
    narrow = m.arena.make(Op.CAST, m.softmax(wide, 1), attrs=CastAttrs(DType.BF16))
    found = instances(text_of(narrow))
    assert max((lanes, items) for _, items, lanes, _ in found) == (8, 4)


def test_floats_are_added_in_short_chains() -> None:
    m = Make()
    x, n = m.x("x", BATCH, 1000), m.x("n", BATCH, 1000, dtype=DType.I64)
    assert "kChain = 8;" in text_of(m.reduced("sum", x, 1))
    assert "kChain = 8;" in text_of(m.reduced("prod", x, 1))
    for unchained in (m.reduced("argmax", x, 1), m.reduced("sum", n, 1)):
        assert "kChain = op::NoFolds::kChain;" in text_of(unchained)


@pytest.mark.parametrize(
    ("folds", "chain"),
    [
        (("amax", "amin"), "16"),
        (("amax", "sum"), "8"),
        (("argmax",), "op::NoFolds::kChain"),
        (("amax", "argmax"), "op::NoFolds::kChain"),
    ],
)
def test_chains_of_extremes_are_for_loads_alone(folds: tuple[str, ...], chain: str) -> None:
    m = Make()
    x = m.x("x", BATCH, 1000)
    text = text_of(*(m.reduced(name, x, 1) for name in folds))
    assert re.findall(r"kChain = (.*?);", text[text.index("_folds0 {") :])[0] == chain


@pytest.mark.parametrize(("operands", "index"), [(2, "Index"), (3, "uint64_t")])
def test_wide_packets_have_the_registers_of_wide_indices(operands: int, index: str) -> None:
    m = Make()
    total = m.x("x0", BATCH, 1000)
    for number in range(1, operands):
        total = m.mul(total, m.x(f"x{number}", BATCH, 1000))
    text = text_of(m.reduced("sum", total, 1))
    assert f"op::kTeamBlocks<kTeam, {index}>" in text


def test_cut_columns_have_blocks_of_their_own() -> None:
    m = Make()
    x = m.x("x", BATCH, LENGTH, 4095)
    cut, whole = text_of(m.reduced("amax", x, 1)), text_of(m.softmax(x, 1))
    assert "op::kCutStripsThreads<kStrips> / kStrips" in cut
    assert "pieces_for((num_rows + 63) / 64, num_rows, length, 256, 8)" in cut
    assert "kCutStrips" not in whole
    # 7 places of 16 bytes for each of 512 threads are too much.
    parts = (m.mul(x, float(number)) for number in range(2, 9))
    many = text_of(*(m.reduced("argmax", part, 1) for part in parts))
    assert "kCutStripsThreads<kStrips> / kStrips" not in many
    assert "pieces_for((num_rows + 31) / 32, num_rows, length, 256, 8)" in many


def test_only_a_row_that_may_be_cut_has_pieces() -> None:
    m = Make()
    x = m.x("x", BATCH, 1000)
    whole = m.x("x", 1 << 20)
    cut, uncut = text_of(m.reduced("sum", whole, 0)), text_of(m.softmax(x, 1))
    assert "pieces_for(num_rows, num_rows, length, 4096, 64)" in cut and "_finish_kernel" in cut
    assert "pieces" not in uncut and "_finish_kernel" not in uncut


def test_lines_fit_and_the_text_is_the_same_each_time() -> None:
    m = Make()
    x = m.x("x", BATCH, 9, 8)
    padded = m.pad(m.cat(1, x, m.x("a_rather_long_name", BATCH, 2, 8)), (0, 1, 0), (0, 0, 0))
    outputs = (m.softmax(padded, 1), m.reduced("sum", padded, 1))
    assert text_of(*outputs) == text_of(*outputs)
    long = [line for line in text_of(*outputs).split("\n") if len(line) > 100]
    assert not long
