"""Merged loops and access widths, checked address by address."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opweld.ir.expr import Size, evaluate, quotient, remainder, symbol, symbols_of
from opweld.ir.kernels import kernel as k
from opweld.ir.kernels.kernel import (
    Access,
    Between,
    Buffer,
    Element,
    Index,
    Kernel,
    Load,
    Loop,
    Name,
    Store,
)
from opweld.ir.types import DType, contiguous_strides
from opweld.lower.space import expressions_of, extents_of, merge_loops, with_access

N = symbol("s0")
I0, I1, I2 = (symbol(f"i{axis}") for axis in range(3))


def kernel_of(shape: tuple[Size, ...], *definitions, lanes: int = 4) -> Kernel:
    """A kernel over `shape` with one row-major output."""
    loops = tuple(Loop(f"i{axis}", size) for axis, size in enumerate(shape) if size != 1)
    strides = contiguous_strides(shape)
    place: Size = 0
    for axis, size in enumerate(shape):
        place = place + (symbol(f"i{axis}") * strides[axis] if size != 1 else 0)
    buffers = (
        Buffer("x", DType.F32, False, 0, shape, ""),
        Buffer("result", DType.F32, True, 0, shape, ""),
    )
    element = Element(
        "e", tuple((d.name, DType.F32) for d in definitions), (), ((DType.F32, Name("x_1")),)
    )
    return Kernel(
        "k", "contiguous", "", buffers, (), loops or (Loop("i0", 1),), definitions, element,
        (Store("result", DType.F32, place, 0),), lanes, 1, 128,
    )  # fmt: skip


def load(address: Size, *guard: Between) -> Load:
    return Load("x_1", "x", DType.F32, address, Access.LANE, guard)


def iterations(kernel: Kernel, n: int) -> Iterator[dict[str, int]]:
    """Every iteration in row-major order."""
    ranges = [range(evaluate(loop.extent, {"s0": n})) for loop in kernel.loops]
    for values in itertools.product(*ranges):
        yield {"s0": n} | {x.var: v for x, v in zip(kernel.loops, values, strict=True)}


def table(kernel: Kernel, n: int) -> list[tuple[object, ...]]:
    """All that each iteration computes; an address only where its guard holds."""
    rows: list[tuple[object, ...]] = []
    for point in iterations(kernel, n):
        row: list[object] = [evaluate(store.address, point) for store in kernel.stores]
        for definition in kernel.definitions:
            if isinstance(definition, Load):
                inside = holds(definition.guard, point)
                row.append((inside, evaluate(definition.address, point) if inside else None))
            elif isinstance(definition, Index):
                row.append(evaluate(definition.expr, point))
            else:
                row.append(holds(definition.condition, point))
        rows.append(tuple(row))
    return rows


def holds(condition: tuple[Between, ...], point: dict[str, int]) -> bool:
    return all(
        evaluate(b.low, point) <= evaluate(b.expr, point) < evaluate(b.high, point)
        for b in condition
    )


def assert_merging_keeps_every_address(kernel: Kernel) -> Kernel:
    merged = merge_loops(kernel)
    for n in (1, 2, 3):
        assert table(merged, n) == table(kernel, n)
    return merged


def vars_of(kernel: Kernel) -> list[tuple[str, Size]]:
    return [(loop.var, loop.extent) for loop in kernel.loops]


def test_an_elementwise_kernel_is_one_loop() -> None:
    merged = assert_merging_keeps_every_address(kernel_of((N, 3, 4), load(I0 * 12 + I1 * 4 + I2)))
    assert vars_of(merged) == [("i", N * 12)]
    assert merged.definitions[0].address == symbol("i")


def test_a_row_keeps_its_loop() -> None:
    merged = assert_merging_keeps_every_address(kernel_of((N, 3, 4), load(I1 * 4 + I2)))
    assert vars_of(merged) == [("i0", N), ("i1", 12)]


def test_a_column_keeps_the_loop_of_its_rows() -> None:
    merged = assert_merging_keeps_every_address(kernel_of((N, 3, 4), load(I0 * 3 + I1)))
    assert vars_of(merged) == [("i0", N * 3), ("i1", 4)]


def test_a_channel_keeps_all_three() -> None:
    merged = assert_merging_keeps_every_address(kernel_of((N, 3, 4), load(I1)))
    assert vars_of(merged) == [("i0", N), ("i1", 3), ("i2", 4)]


def test_a_scalar_does_not_hinder() -> None:
    merged = assert_merging_keeps_every_address(kernel_of((N, 3, 4), load(0)))
    assert vars_of(merged) == [("i", N * 12)]


def test_a_transpose_merges_nothing() -> None:
    merged = assert_merging_keeps_every_address(kernel_of((N, 3), load(I1 * N + I0)))
    assert vars_of(merged) == [("i0", N), ("i1", 3)]


def test_a_guard_hinders() -> None:
    guarded = load(I0 * 4 + I1 - 4, Between(I0, 1, N))
    merged = assert_merging_keeps_every_address(kernel_of((N, 4), guarded))
    assert vars_of(merged) == [("i0", N), ("i1", 4)]


def test_a_test_and_an_index_hinder() -> None:
    plain = load(I0 * 4 + I1)
    for other in (
        k.Test("inside_1", (Between(I1, 1, 4),), Access.LANE),
        Index("index_1", I1 * 2, Access.LANE),
    ):
        merged = assert_merging_keeps_every_address(kernel_of((N, 4), plain, other))
        assert len(merged.loops) == 2


def test_a_quotient_of_a_loop_variable_hinders() -> None:
    bounds = {"i0": N, "i1": 12}
    merged = assert_merging_keeps_every_address(kernel_of((N, 12), load(quotient(I1, 4, bounds))))
    assert len(merged.loops) == 2


def test_an_address_that_is_negative_outside_its_guard_stays_right() -> None:
    """One row before the first is cut by the guard; a quotient must not be simplified as if i1 >=
    1.
    """
    bounds = {"i0": N, "i1": 8}
    shifted = I0 * 8 + I1 - 1
    address = quotient(shifted, 4, bounds) * 4 + remainder(shifted, 4, bounds)
    guarded = load(address, Between(I1, 1, 8))
    merged = merge_loops(kernel_of((N, 8), guarded))
    (definition,) = merged.definitions
    for point in iterations(merged, 3):
        if point["i1"] >= 1:
            assert evaluate(definition.address, point) == point["i0"] * 8 + point["i1"] - 1


terms = st.tuples(
    st.sampled_from([0, 1, 2, 3, 4, 8, 12, N, N * 4]), st.sampled_from([I0, I1, I2, 1])
).map(lambda pair: pair[0] * pair[1])
affine = st.lists(terms, min_size=1, max_size=4).map(lambda parts: sum(parts, start=0))
row_major = st.just(I0 * 12 + I1 * 4 + I2)
plain_addresses = affine | row_major | st.sampled_from([I1 * 4 + I2, I0 * 3 + I1, I2, I1])


@given(st.lists(plain_addresses, min_size=1, max_size=3))
def test_merging_keeps_every_address(addresses: list[Size]) -> None:
    loads = [replace(load(a), name=f"x_{number}") for number, a in enumerate(addresses, start=1)]
    assert_merging_keeps_every_address(kernel_of((N, 3, 4), *loads))


@given(
    st.lists(plain_addresses, min_size=1, max_size=3),
    st.sampled_from([(N, 3, 4), (2, 3, 8), (N, 8), (N, 7), (12,), (N,), (3, N)]),
    st.sampled_from([1, 2, 4, 8]),
)
def test_an_access_is_true_for_every_packet(
    addresses: list[Size], shape: tuple[Size, ...], lanes: int
) -> None:
    loops = {f"i{axis}" for axis in range(len(shape))} | {"s0"}
    fitting = [address for address in addresses if symbols_of(address) <= loops]
    loads = [replace(load(a), name=f"x_{number}") for number, a in enumerate(fitting, start=1)]
    kernel = with_access(merge_loops(kernel_of(shape, *loads, lanes=lanes)))
    for n in (1, 2, 3, 8):
        points = list(iterations(kernel, n))
        for definition in kernel.definitions:
            numbers = [evaluate(definition.address, point) for point in points]
            assert_access(definition.access, numbers, lanes)


def assert_access(access: Access, addresses: list[int], lanes: int) -> None:
    for first in range(0, len(addresses) - lanes + 1, lanes):
        packet = addresses[first : first + lanes]
        if access is Access.FLAT:
            assert packet == list(range(first, first + lanes))
        elif access is Access.VECTOR:
            assert packet[0] % lanes == 0
            assert packet == list(range(packet[0], packet[0] + lanes))
        elif access is Access.SAME:
            assert len(set(packet)) == 1


@pytest.mark.parametrize(
    ("shape", "address", "access"),
    [
        ((N, 8), I0 * 8 + I1, Access.FLAT),
        ((N, 7), I0 * 7 + I1, Access.FLAT),
        ((N, 8), I1, Access.VECTOR),  # a row
        ((N, 8), I0, Access.SAME),  # a column
        ((N, 8), 0, Access.SAME),  # a scalar
        ((N, 7), I1, Access.LANE),  # a packet can go over the end of a row
        ((N, 7), I0, Access.LANE),
        ((N, 7), 0, Access.SAME),
        ((N, 8), I0 * 16 + I1 + 8, Access.VECTOR),  # an aligned slice
        ((N, 8), I0 * 16 + I1 + 3, Access.LANE),  # a slice that begins between packets
        ((N, 8), I0 * 10 + I1, Access.LANE),  # rows that begin between packets
        ((N, 8), I1 * N + I0, Access.LANE),  # a transpose
        ((N, 8), I0 * 16 + I1 * 2, Access.LANE),  # every second element
        ((8, N), I1, Access.LANE),  # a row of unknown length
        ((8, N * 4), I1, Access.VECTOR),
    ],
)
def test_which_access(shape: tuple[Size, ...], address: Size, access: Access) -> None:
    kernel = with_access(merge_loops(kernel_of(shape, load(address))))
    assert kernel.definitions[0].access is access


def test_a_scalar_in_one_loop_is_the_same_for_all_lanes() -> None:
    kernel = with_access(merge_loops(kernel_of((N, 7), load(0))))
    assert vars_of(kernel) == [("i", N * 7)]
    assert kernel.definitions[0].access is Access.SAME


def test_a_guarded_load_is_never_a_vector() -> None:
    """Lanes outside the guard must not be read."""
    for address in (I0 * 8 + I1, I1):
        kernel = with_access(kernel_of((N, 8), load(address, Between(I1, 0, 6))))
        assert kernel.definitions[0].access is Access.LANE
    kernel = with_access(kernel_of((N, 8), load(I0, Between(I0, 1, N))))
    assert kernel.definitions[0].access is Access.SAME


def test_tests_and_indices_are_shared_where_they_do_not_move_along_a_row() -> None:
    test = k.Test("inside_1", (Between(I0, 1, N),), Access.LANE)
    index = Index("index_1", I0 * 3, Access.LANE)
    moving = Index("index_2", I1, Access.LANE)
    kernel = with_access(kernel_of((N, 8), load(0), test, index, moving))
    assert [d.access for d in kernel.definitions[1:]] == [Access.SAME, Access.SAME, Access.LANE]


def test_extents_are_the_sizes_and_strides_that_are_used() -> None:
    definitions = (load(symbol("x_stride0") * I0, Between(I0, 1, symbol("s1"))),)
    kernel = kernel_of((N, 8), *definitions)
    extents = extents_of(kernel.loops, kernel.definitions, kernel.stores, kernel.buffers)
    assert [(e.name, e.buffer, e.axis) for e in extents] == [
        ("s0", None, None),
        ("s1", None, None),
        ("x_stride0", "x", 0),
    ]


def test_all_expressions_of_a_definition_are_seen() -> None:
    assert expressions_of(load(I0, Between(I1, 0, 4))) == [I0, I1]
    assert expressions_of(Index("a", I2, Access.LANE)) == [I2]
    assert expressions_of(k.Test("b", (Between(I0, 0, 1), Between(I1, 0, 1)), Access.LANE)) == [
        I0,
        I1,
    ]
