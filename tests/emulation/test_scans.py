"""Scans as CUDA text compute what they mean, at every edge of teams, packets, chunks and pieces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.emulation.emulate import ORDERS, emulate, from_bfloat16, to_bfloat16
from tests.emulation.scans import ANY_CALL, Calls, Case, case, each_result, exact, run
from tests.nvcc import compile_cuda, needs_nvcc, ptx_of, require_no_spills
from tests.scan_graphs import EXTREMES, GRAPHS, LENGTH, SUMS, hard_rows, values
from tests.unit.plan.plans import Make

from opweld.render.cuda.scan_pieces import piece_instance, smallest_piece
from opweld.render.cuda.texts import cuda_text

CUT = ("sums_reverse", "odd_exclusive", "across", "across_both", "extremes", "extremes_across")
CUT += ("powers", "doubles")


@cache
def case_of(name: str, cut: bool = False) -> Case:
    return case(f"{name}{'_cut' if cut else ''}", *GRAPHS[name](Make()), cut=cut)


# Pieces of a row that a block keeps in registers stand in groups of as many as it has threads, but
# one; here in groups of 3.
PIECE, GROUPS = 16384, ("kGroup = kTeam - 1;", "kGroup = 3;")


@cache
def text_of(name: str, cut: bool = False) -> str:
    text = cuda_text((case_of(name, cut).scan,))
    assert not cut or "across" in name or GROUPS[0] in text
    return text.replace(*GROUPS)


def sizes_of(name: str, x: np.ndarray) -> dict[str, int]:
    """The symbols by which the operand `x` of a graph has its shape."""
    rows, length, *width = x.shape
    if name == "of_a_transpose":
        rows, length = length, rows
    single = name.startswith(("odd", "behind"))
    packet = 8 if name.startswith("half") else 4
    if width:
        return {"s0": rows, "s1": length, "s2": width[0] // packet}
    return {"s0": rows, "s1": length if single else length // packet}


def check(
    name: str,
    feeds: Mapping[str, np.ndarray],
    calls: Calls = ANY_CALL,
    cut: bool = False,
    rtol: float = 1e-6,
    of_largest: float = 4e-7,
) -> None:
    """Every way to call a scan gives what the graph means: within `rtol`, or so much of the largest
    result.
    """
    sizes = sizes_of(name, feeds["x"])
    for mine, theirs, call in each_result(
        text_of(name, cut), case_of(name, cut), feeds, sizes, calls
    ):
        finite = np.abs(theirs[np.isfinite(theirs)])
        atol = of_largest * np.max(finite, initial=0.0)
        np.testing.assert_allclose(mine, theirs, rtol, atol, err_msg=f"{name} {call}")


def feeds_of(name: str, *shape: int) -> dict[str, np.ndarray]:
    x = values(*shape)
    if name.startswith("across"):
        return {"x": x, "row": values(shape[-1], seed=1)}
    return {"x": x, **({"y": values(*shape, seed=1)} if name.startswith("sums") else {})}


# Every team, and both sides of its chunks: by packets of four, and by single elements.
ALONG = (4, 28, 32, 36, 124, 128, 132, 1020, 1024, 1028, 1032, 2048, 2052, 4096, 4100, 9000)
ODD = (1, 2, 7, 8, 31, 32, 33, 127, 129, 255, 257, 1023, 1025, 1027, 2049, 4097, 4099)


@pytest.mark.parametrize("length", ALONG)
@pytest.mark.parametrize("name", [name for name in SUMS if name.startswith("sums")])
def test_sums_along_rows(name: str, length: int) -> None:
    rows = 37 if length < 200 else 3
    calls = ANY_CALL if length in (36, 1028, 4100) else ({},)
    check(name, feeds_of(name, rows, length), calls)


@pytest.mark.parametrize("length", ODD)
@pytest.mark.parametrize("name", [name for name in SUMS if name.startswith("odd")])
def test_sums_of_any_length(name: str, length: int) -> None:
    rows = 37 if length < 200 else 3
    calls = ANY_CALL if length in (33, 257, 1025) else ({},)
    check(name, feeds_of(name, rows, length), calls)


@pytest.mark.parametrize("shape", [(1, 1, 4), (2, 8, 64), (3, 65, 36), (1, 257, 4), (2, 530, 8)])
@pytest.mark.parametrize("name", [name for name in SUMS if name.startswith("across")])
def test_sums_across_few_rows(name: str, shape: tuple[int, ...]) -> None:
    calls = ANY_CALL if shape[1] == 65 else ({},)
    check(name, feeds_of(name, *shape), calls)


@pytest.mark.parametrize("length", [1, 8, 17])
def test_sums_across_many_rows(length: int) -> None:
    for name in ("across", "across_both"):
        check(name, feeds_of(name, 1, length, 16388), ({},))


@pytest.mark.parametrize("columns", [32772, 270340])
def test_sums_across_blocks_of_many_columns(columns: int) -> None:
    """Of single columns, which several strips scan, or one: two chunks, and a last one in part."""
    length = {32772: 70, 270340: 17}[columns]
    check("across", feeds_of("across", 1, length, columns), ({"aligned": False},))


def test_more_rows_than_fit_beside_each_other() -> None:
    """A row has a block of a quarter of its threads where there are rows for every other one."""
    check("odd", {"x": values(1100, 2300)}, ({},))


@pytest.mark.parametrize("pieces", [1, 2, 5, 70])
@pytest.mark.parametrize("name", [n for n in CUT if n in SUMS and n.startswith("across")])
def test_sums_of_columns_in_pieces(name: str, pieces: int) -> None:
    calls = in_pieces(pieces)
    for shape in ((3, 90, 20), (1, 1040, 4)):
        check(name, feeds_of(name, *shape), calls, cut=True)


def in_pieces(pieces: int) -> Calls:
    return tuple({**options, "pieces": pieces} for options in ANY_CALL)


def most_pieces(name: str, length: int) -> int:
    """As many as the host code asks for, but two at least."""
    return max(-(-length // smallest_piece(case_of(name, True).scan.contiguous)), 2)


@pytest.mark.parametrize("length", [4, PIECE + 4, 2 * PIECE, 4 * PIECE - 4])
@pytest.mark.parametrize("name", [n for n in CUT if n in SUMS and not n.startswith("across")])
def test_sums_of_rows_in_pieces(name: str, length: int) -> None:
    check(name, feeds_of(name, 2, length), in_pieces(most_pieces(name, length)), cut=True)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("name", [n for n in SUMS if n.startswith("odd")])
def test_what_is_left_behind_the_packets_of_a_row(name: str, rows: int) -> None:
    """Of a row alone it is taken one by one, of several all is."""
    text = text_of(name, True)
    assert "num_rows == 1 || length % 4 == 0" in text
    for length in (PIECE + 1, 2 * PIECE + 3, 2 * PIECE - 1):
        check(name, feeds_of(name, rows, length), in_pieces(most_pieces(name, length)), cut=True)


@cache
def _behind_another_row() -> Case:
    m = Make()
    second = m.slice(m.x("y", 2, LENGTH), 0, 1, 1)
    return case("behind", m.scanned("cumsum", m.add(m.x("x", 1, LENGTH), second), 1), cut=True)


@pytest.mark.parametrize("length", [2 * PIECE, 2 * PIECE + 3])
def test_an_operand_that_begins_behind_another_row(length: int) -> None:
    """Packets of a row alone are not aligned there, unless rows are whole packets."""
    found, feeds = _behind_another_row(), {"x": values(1, length), "y": values(2, length, seed=1)}
    text = cuda_text((found.scan,))
    assert "if (aligned && length % 4 == 0) {" in text
    calls = in_pieces(-(-length // smallest_piece(found.scan.contiguous)))
    for mine, theirs, call in each_result(text, found, feeds, {"s1": length}, calls):
        limit = 4e-7 * np.abs(theirs).max()
        np.testing.assert_allclose(mine, theirs, 2e-6, limit, err_msg=str(call))


def test_what_a_piece_rounds_away_is_carried_to_the_next() -> None:
    """Warps that each add less than a digit of what the first one comes to."""
    x = np.zeros((1, 2 * PIECE), np.float32)
    x[0, : PIECE // 2 : PIECE // 8] = 3.0
    x[0, 0] = 1e8
    found = case_of("odd", True)
    (got,) = run(text_of("odd", True), found, {"x": x}, sizes_of("odd", x), pieces=2)
    assert abs(got[0, -1] / 2 - x.sum(dtype=np.float64)) <= 4.0  # half a digit


def test_any_states_in_pieces() -> None:
    """Those that are told in one access, and longer ones."""
    x = values(1, 3 * PIECE + 8) * 10
    cases = (("powers", x, 2e-6, 4e-7), ("doubles", x.astype(np.float64), 0, 1e-15))
    for name, x, rtol, of_largest in (*cases, ("extremes", hard_rows(2, 2 * PIECE + 4), 0, 0)):
        calls = in_pieces(most_pieces(name, x.shape[1]))
        check(name, {"x": x}, calls, cut=True, rtol=rtol, of_largest=of_largest)


ASKED = """
extern "C" int asked(int64_t num_rows, int64_t length, int64_t* answers, void* stream) {
  answers[0] = GROUP_pieces(num_rows, length) * num_rows * GROUP_partial_bytes();
  answers[1] = op::LookBack<GROUP_carry, 32>::bytes((length + PIECE - 1) / PIECE, num_rows);
  return 0;
}
"""


@pytest.mark.parametrize("name", ["sums_reverse", "powers", "doubles", "extremes"])
def test_the_memory_is_enough_for_the_smallest_pieces(name: str) -> None:
    """Those of single elements, which a launch may take for packets. Groups are small here."""
    scan = case_of(name, True).scan
    asked = ASKED.replace("GROUP", scan.group)
    for lanes in {1, scan.contiguous.lanes}:
        piece = piece_instance(scan.contiguous, lanes).elems
        for rows, length in ((1, 1 << 20), (3, (1 << 18) + 5)):
            answers = np.zeros(2, np.int64)
            text = text_of(name, True) + asked.replace("PIECE", str(piece))
            emulate(text, "asked", [rows, length, answers])
            assert answers[0] >= answers[1] > 0


def test_a_sum_of_many_pieces_is_rounded_as_little_as_one() -> None:
    x = np.full((1, 20 * PIECE + 4), 0.1, np.float32)
    sizes = sizes_of("odd_exclusive", x)
    (sums,) = exact(case_of("odd_exclusive", True), {"x": x}, sizes)
    text, case = text_of("odd_exclusive", True), case_of("odd_exclusive", True)
    (got,) = run(text, case, {"x": x}, sizes, pieces=most_pieces("odd_exclusive", x.size))
    naive = np.cumsum(x, axis=1, dtype=np.float32)[0, :-1]
    assert np.abs(got[0, 1:] / sums[0, 1:] - 1).max() < 3e-7
    assert np.abs(naive / sums[0, 1:] - 1).max() > 1e-5


def test_products() -> None:
    x = 1 + values(5, 1200) / 50
    for name in ("products", "products_both"):
        check(name, {"x": x}, rtol=2e-5, of_largest=0)


@pytest.mark.parametrize("length", [4, 132, 1500])
def test_logarithms_of_sums_of_powers(length: int) -> None:
    x = values(9, length) * 10
    x[0], x[1, 3] = -np.inf, np.inf
    x[2, :3], x[3, 3] = -np.inf, np.nan
    for name in ("powers", "powers_reverse"):
        check(name, {"x": x}, rtol=2e-6)
    check("powers_across", {"x": values(2, length, 8)}, ({},), rtol=2e-6)
    check("powers", {"x": x}, in_pieces(3), cut=True, rtol=2e-6)


@pytest.mark.parametrize("pieces", [0, 1, 3])
@pytest.mark.parametrize("name", ["extremes", "extremes_across"])
def test_extremes_and_their_places(name: str, pieces: int) -> None:
    """The last of equal extremes, and the last NaN, has the place."""
    calls = tuple({**o, "pieces": pieces} if pieces else o for o in ANY_CALL)
    for length in (4, 40, 1300):
        shape = (length,) if name == "extremes" else (length, 8)
        x = hard_rows(9 if length < 1000 else 5, *shape)
        check(name, {"x": x}, calls, cut=pieces > 0, rtol=0, of_largest=0)
        (case, sizes) = (case_of(name, pieces > 0), sizes_of(name, x))
        got = run(text_of(name, pieces > 0), case, {"x": x}, sizes, pieces=max(pieces, 1))
        for values_of, places in ((got[0], got[1]), (got[2], got[3])):
            found = np.take_along_axis(x, places, axis=1)
            np.testing.assert_array_equal(np.signbit(found), np.signbit(values_of))


def test_the_largest_from_the_end() -> None:
    check("largest_from_the_end", {"x": hard_rows(9, 1028)}, rtol=0, of_largest=0)


def test_other_types() -> None:
    check("integers", {"x": values(5, 1100, dtype=np.int64)}, rtol=0, of_largest=0)
    check("doubles", {"x": values(5, 1100, dtype=np.float64)}, rtol=0, of_largest=1e-15)
    x = values(5, 1104).astype(np.float16)
    for name in ("half", "half_reverse"):
        check(name, {"x": x}, rtol=1e-3)


def test_bfloat16_across() -> None:
    x = to_bfloat16(values(2, 40, 16))
    sizes = sizes_of("half_across", x)
    case = case_of("half_across")
    (wanted,) = exact(case, {"x": from_bfloat16(x)}, sizes)
    for options in ANY_CALL[:3]:
        (got,) = run(text_of("half_across"), case, {"x": x}, sizes, **options)  # type: ignore
        np.testing.assert_allclose(from_bfloat16(got), wanted, rtol=4e-3, atol=1e-6)


@pytest.mark.parametrize("length", [1, 7, 300])
def test_operands_under_conditions_and_transposed(length: int) -> None:
    check("behind_nothing", {"x": values(3, length)})
    check("of_a_transpose", {"x": values(length * 4, 9)})


def test_sums_of_infinities() -> None:
    x = values(4, 2400)
    x[0, 7], x[1, 2399], x[2, 3], x[2, 2300] = np.nan, np.inf, np.inf, -np.inf
    (got,) = run(text_of("odd"), case_of("odd"), {"x": x}, {"s0": 4, "s1": 2400})
    assert np.isfinite(got[0, :7]).all() and np.isnan(got[0, 7:]).all()
    assert np.isfinite(got[1, :-1]).all() and got[1, -1] == np.inf
    assert (got[2, 3:2300] == np.inf).all() and np.isnan(got[2, 2300:]).all()
    assert np.isfinite(got[3]).all()


def test_rows_of_nothing() -> None:
    for name in ("odd", "sums_reverse"):
        x = np.empty((3, 0), np.float32)
        feeds = {"x": x, "y": x} if name.startswith("sums") else {"x": x}
        for options in ANY_CALL:
            got = run(text_of(name), case_of(name), feeds, {"s0": 3, "s1": 0}, **options)  # type: ignore
            assert got[0].shape == (3, 0)


def test_a_long_sum_is_rounded_as_little_as_a_short_one() -> None:
    """What a row carries from chunk to chunk loses nothing: a sum that did would be far off."""
    x = np.full((1, 200000), 0.1, np.float32)
    (sums,) = exact(case_of("odd"), {"x": x}, {"s0": 1, "s1": x.size})
    (got,) = run(text_of("odd"), case_of("odd"), {"x": x}, {"s0": 1, "s1": x.size})
    naive = 2 * np.cumsum(x, axis=1, dtype=np.float32)
    assert np.abs(got / sums - 1).max() < 2e-7 < np.abs(naive / sums - 1).max() / 100


@pytest.mark.parametrize("order", ORDERS[1:])
def test_every_order_of_threads_gives_the_same_bits(order: str) -> None:
    cases = (("odd", False, (2, 2500)), ("across", True, (1, 300, 12)))
    for name, cut, shape in (*cases, ("odd_exclusive", True, (1, 2 * PIECE + 5))):
        feeds = feeds_of(name, *shape)
        first, now = (
            run(
                text_of(name, cut),
                case_of(name, cut),
                feeds,
                sizes_of(name, feeds["x"]),
                pieces=3 if cut else 1,
                order=each,
            )
            for each in ("forward", order)
        )
        np.testing.assert_array_equal(first[0], now[0])


@needs_nvcc
@pytest.mark.parametrize("name", ["sums_both", "across", "extremes", "half", "powers_across"])
def test_nvcc_takes_it_without_warnings_and_spills(name: str) -> None:
    require_no_spills(compile_cuda(text_of(name, cut=name in CUT)))


_READ = "ld.relaxed.gpu.global.b128"
_LABEL = r"\$L__BB\d+_\d+"
_ASKED_AGAIN = re.compile(
    rf"({_LABEL}):(?:(?!{_LABEL}:).)*?{re.escape(_READ)}(?:(?!{_LABEL}:).)*?bra\s+\1;", re.DOTALL
)


def asks_again(text: str, folder: Path) -> bool:
    """Whether every read of what another block tells is in a loop of its own."""
    ptx = ptx_of(text, folder)
    assert _READ in ptx
    return len(_ASKED_AGAIN.findall(ptx)) == ptx.count(_READ)


@needs_nvcc
def test_what_waits_asks_again(tmp_path: Path) -> None:
    """A read that may be left out or taken out of its loop makes a wait that is none."""
    text, told = text_of("sums_reverse", cut=True), "while (!Slot::look(at, carry)) {"
    assert told in text
    assert asks_again(text, tmp_path)
    assert not asks_again(text.replace(told, "if (!Slot::look(at, carry)) {"), tmp_path)


def test_every_extreme_is_compared() -> None:
    assert {op.value for op in _scanned("extremes")} == set(EXTREMES)


def _scanned(name: str) -> set:
    return {fold.op for fold in case_of(name).scan.contiguous.steps[0].walk.folds}
