"""The C++ kernels of scans against the interpreter in float64, at edges of spans and strips."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from tests.emulation.emulate import from_bfloat16, to_bfloat16
from tests.emulation.scans import Case, case, exact
from tests.kernels import with_gaps
from tests.reduction_kernels import run_reduction
from tests.scan_graphs import GRAPHS, SUMS, hard_rows, values
from tests.unit.plan.plans import Make

from opweld.ir.expr import evaluate
from opweld.render import render

VARIANTS = ("contiguous", "strided")


@cache
def case_of(name: str, cut: bool) -> Case:
    return case(name, *GRAPHS[name](Make()), cut=cut)


def results(
    name: str,
    feeds: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    variant: str = "contiguous",
    pieces: int = 0,
) -> list[np.ndarray]:
    """The graph's outputs; rows are cut in pieces if there are any."""
    each = case_of(name, pieces > 0)
    operands = [feeds[node.attrs.access] for node in each.group.inputs]
    if variant == "strided":
        operands = [with_gaps(operand) for operand in operands]
    shapes = [[evaluate(s, sizes) for s in node.type.shape] for node in each.group.outputs]
    got = run_reduction(each.scan, operands, sizes, shapes, variant=variant, pieces=pieces)
    return [got[each.group.outputs.index(node)] for node in each.graph.outputs]


def check(
    name: str,
    feeds: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    pieces: int = 0,
    rtol: float = 1.2e-7,
    atol: float = 1e-45,
) -> None:
    """Each result is rounded once: what is summed up is so in float64."""
    for variant in VARIANTS:
        wanted = exact(case_of(name, pieces > 0), feeds, sizes)
        for mine, theirs in zip(results(name, feeds, sizes, variant, pieces), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol, atol, err_msg=f"{name} {variant}")


LENGTHS = (0, 1, 3, 64, 511, 512, 513, 1024, 1300)


@pytest.mark.parametrize("pieces", [0, 1, 3])
@pytest.mark.parametrize("name", [name for name in SUMS if name.startswith("odd")])
def test_sums_along_rows(name: str, pieces: int) -> None:
    for length in LENGTHS:
        x = values(5, length)
        check(name, {"x": x}, {"s0": 5, "s1": length}, pieces)


@pytest.mark.parametrize("name", [name for name in SUMS if name.startswith("sums")])
def test_what_is_computed_before_and_after(name: str) -> None:
    for length in (4, 1200):
        feeds = {"x": values(5, length), "y": values(5, length, seed=1)}
        largest = np.abs(np.cumsum(feeds["x"] * feeds["y"], 1)).max()
        check(name, feeds, {"s0": 5, "s1": length // 4}, atol=3e-7 * largest)


@pytest.mark.parametrize("pieces", [0, 1, 3])
@pytest.mark.parametrize("name", [name for name in SUMS if name.startswith("across")])
def test_sums_across_rows(name: str, pieces: int) -> None:
    for shape in ((1, 1, 4), (2, 33, 12), (3, 5, 520), (2, 0, 4)):
        feeds = {"x": values(*shape), "row": values(shape[-1], seed=1)}
        sizes = {"s0": shape[0], "s1": shape[1], "s2": shape[2] // 4}
        check(name, feeds, sizes, pieces, atol=1e-6)


@pytest.mark.parametrize("pieces", [0, 2])
@pytest.mark.parametrize("name", ["extremes", "extremes_across"])
def test_extremes_and_their_places(name: str, pieces: int) -> None:
    for length in (4, 600):
        shape = (length,) if name == "extremes" else (length, 8)
        x = hard_rows(6, *shape)
        sizes = {"s0": 6, "s1": length // 4} if name == "extremes" else {"s0": 6, "s1": length}
        check(name, {"x": x}, {**sizes, "s2": 2}, pieces, rtol=0)


def test_the_largest_from_the_end() -> None:
    check("largest_from_the_end", {"x": hard_rows(6, 1028)}, {"s0": 6, "s1": 257}, rtol=0)


def test_products_and_logarithms_of_sums_of_powers() -> None:
    x = 1 + values(5, 1200) / 50
    for name in ("products", "products_both"):
        check(name, {"x": x}, {"s0": 5, "s1": 300})
    x = values(6, 1200) * 10
    x[0], x[1, 3], x[2, 3] = -np.inf, np.inf, np.nan
    for name in ("powers", "powers_reverse"):
        check(name, {"x": x}, {"s0": 6, "s1": 300}, rtol=3e-7, atol=1e-7)
    x = values(2, 40, 8)
    check("powers_across", {"x": x}, {"s0": 2, "s1": 40, "s2": 2}, rtol=3e-7, atol=1e-7)


def test_other_types() -> None:
    sizes = {"s0": 5, "s1": 280}
    check("integers", {"x": values(5, 1120, dtype=np.int64)}, sizes, rtol=0)
    check("doubles", {"x": values(5, 1120, dtype=np.float64)}, sizes, rtol=0, atol=1e-12)
    for name in ("half", "half_reverse"):
        x = values(5, 1120).astype(np.float16)
        check(name, {"x": x}, {"s0": 5, "s1": 140}, rtol=5e-4, atol=1e-7)


def test_bfloat16_across() -> None:
    x = to_bfloat16(values(2, 40, 16))
    sizes = {"s0": 2, "s1": 40, "s2": 2}
    (got,) = results("half_across", {"x": x}, sizes)
    (wanted,) = exact(case_of("half_across", False), {"x": from_bfloat16(x)}, sizes)
    np.testing.assert_allclose(from_bfloat16(got), wanted, rtol=4e-3, atol=1e-6)


def test_operands_under_conditions_and_transposed() -> None:
    for length in (1, 7, 700):
        check("behind_nothing", {"x": values(3, length)}, {"s0": 3, "s1": length})
        x = values(length * 4, 9)
        check("of_a_transpose", {"x": x}, {"s0": 9, "s1": length})


def test_a_sum_of_many_is_as_exact_as_one_of_few() -> None:
    x = np.full((1, 1000000), 0.1, np.float32)
    (got,) = results("odd", {"x": x}, {"s0": 1, "s1": x.size})
    wanted = 2 * np.cumsum(x, axis=1, dtype=np.float64)
    assert np.abs(got / wanted - 1).max() < 6e-8


def test_a_text_has_the_entries_that_the_host_calls() -> None:
    whole, cut = (render("case", (case_of("odd", cut).scan,), "c++") for cut in (False, True))
    group = case_of("odd", False).scan.group
    assert whole.entry_points == (f"{group}_contiguous", f"{group}_strided")
    parts = {f"{group}_{v}_{part}" for v in VARIANTS for part in ("fold", "scan")}
    assert set(cut.entry_points) == {f"{group}_partial_bytes", *parts}
    for source in (whole, cut):
        assert all(f"{name}(" in source.text for name in source.entry_points)
