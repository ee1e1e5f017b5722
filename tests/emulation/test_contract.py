"""Matrix products by op::contract against float64: every mode, layout, edge and odd value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.emulation.distributions import chain_of_fmas
from tests.emulation.emulate import EmulationFault
from tests.emulation.products import MODES, Call, needs, product, stored, text, widened
from tests.nvcc import compile_cuda, needs_nvcc, require_no_spills

EXTENTS = [(1, 1, 1, 1), (1, 64, 64, 16), (1, 65, 63, 17), (2, 3, 130, 33), (3, 70, 5, 15)]
EXTENTS += [(2, 129, 20, 72), (1, 17, 131, 290)]


def operands(batches: int, m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = ((batches, m, k), (batches, n, k))
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in shapes)
    return a, b


def check(a: np.ndarray, b: np.ndarray, call: Call, **options: object) -> None:
    """The error of every element against float64, by the bound of a float32 sum of k products, of
    operands that TF32 rounds to 11 bits."""
    a, b = stored(a, call.mode), stored(b, call.mode)
    found = product(a, b, call, **options)
    exact_a, exact_b = widened(a, call.mode), widened(b, call.mode)
    exact = np.einsum("bmk,bnk->bmn", exact_a, exact_b)
    size = np.einsum("bmk,bnk->bmn", abs(exact_a), abs(exact_b))
    # A chain of k roundings in the worst order; the tensor core drops up to 2^-23 for each 16.
    rounded = 2.0**-10 if call.mode == "Tf32" else 0.0
    assert (abs(found - exact) <= size * (rounded + max(a.shape[2], 16) * 2.0**-24)).all()


FAMILIES = ("none", "mma", "small")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_a_product_of_any_extents_is_near_float64(
    extents: tuple[int, ...], mode: str, family: str
) -> None:
    lanes = 2 if extents[2] % 2 == 0 else 1
    check(*operands(*extents), Call(mode, lanes=lanes, family=family))


# Few rows on either side, reached by every kernel for them: one, up to 4, 8 and 16 rows; extents
# that vectors divide and others; sums over k by one warp, by eight, and by several blocks.
FEW = [(1, 1, 70, 128), (2, 3, 36, 129), (1, 40, 5, 256), (1, 64, 8, 96), (1, 9, 33, 64)]
FEW += [(2, 16, 48, 136), (1, 1, 2, 20000), (1, 66, 16, 4100), (1, 12, 11, 16500), (1, 70, 1, 31)]
# Blocks of one, two, four and eight warps for the same rows; several tasks of a block.
FEW += [(1, 3, 200, 260), (1, 8, 150, 1000), (3, 4, 130, 512), (1, 1, 600, 1032), (1, 6, 70, 8200)]


@pytest.mark.parametrize("mode", ["Faithful", "Half", "Bfloat16"])
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
@pytest.mark.parametrize("extents", FEW, ids=str)
def test_few_rows_against_many(mode: str, across: bool, extents: tuple[int, ...]) -> None:
    a, b = operands(*extents)
    if across:
        a, b = (np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1) for x in (a, b))
    check(a, b, Call(mode, lanes=2 if extents[2] % 2 == 0 else 1))


# Short sums, which one warp makes for its columns: fewer and more of these than it has lanes, some
# rows of a warp and several bands of them, operands along k and across.
SHORT = [(1, 20, 20, 32), (1, 300, 132, 16), (2, 33, 260, 1), (1, 65, 129, 17), (3, 40, 31, 5)]


@pytest.mark.parametrize("mode", ["Faithful", "Tf32"])
@pytest.mark.parametrize("across", ["", "a", "b", "ab"])
@pytest.mark.parametrize("extents", SHORT, ids=str)
def test_short_sums_are_chains_of_fused_multiply_adds(
    extents: tuple[int, ...], across: str, mode: str
) -> None:
    a, b = operands(*extents)
    laid = [
        np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1) if name in across else x
        for name, x in (("a", a), ("b", b))
    ]
    lanes = next(lanes for lanes in (4, 2, 1) if extents[2] % lanes == 0)
    call = Call(mode, lanes=lanes, family="mma")
    assert needs(extents, call) == (0, 0), "as they are"
    source = text(("Faithful", "Tf32"), lanes=(1, 2, 4), family="mma")
    found = product(*laid, call, source=source)
    # 53 bits hold the exact sum of a product and a float32 but for a rare rounding.
    chain = chain_of_fmas(a, b)
    assert np.mean(found != chain) < 0.01
    np.testing.assert_allclose(found, chain, rtol=1e-4, atol=1e-6)
    alone = replace(call, aligned=False)
    np.testing.assert_array_equal(product(*laid, alone, source=source), found)
    wide = replace(call, narrow=False)
    np.testing.assert_array_equal(product(*laid, wide, source=source), found)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 3e38, -0.0])
def test_odd_values_in_short_sums(odd: float) -> None:
    a, b = operands(1, 40, 36, 7)
    a[0, 3, 5] = b[0, 11, 2] = odd
    b[0, 4, 5] = 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        chain = chain_of_fmas(a, b)
    np.testing.assert_allclose(product(a, b, Call(lanes=2)), chain, rtol=1e-4, atol=1e-6)


def test_the_order_of_threads_changes_no_short_sum() -> None:
    a, b = operands(2, 70, 132, 12)
    first = product(a, b, Call(lanes=2))
    for order in ("reverse", "seeded"):
        found = product(a, b, Call(lanes=2, options={"order": order, "guard": "front"}))
        np.testing.assert_array_equal(found, first)


@pytest.mark.parametrize(
    "call",
    [
        Call(lanes=1),
        Call(lanes=1, family="small"),
        *(Call(mode, 1, family="mma") for mode in ("Faithful", "Tf32", "Half")),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["a transposed", "b transposed", "both", "sliced", "broadcast"])
def test_operands_may_have_any_strides(layout: str, call: Call) -> None:
    a, b = operands(2, 37, 70, 29 if call.family == "none" else 230)
    if layout in ("a transposed", "both"):
        a = np.ascontiguousarray(a.transpose(0, 2, 1)).transpose(0, 2, 1)
    if layout in ("b transposed", "both"):
        b = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)
    if layout == "sliced":
        a, b = a[:, ::2, 1::3], b[:, 1::3, 1::3]
    if layout == "broadcast":
        b = np.broadcast_to(b[:1], b.shape)
    check(a, b, call)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", ["Faithful", "Half"])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("rows", [3, 20])
def test_an_operand_may_repeat_itself(mode: str, family: str, axis: int, rows: int) -> None:
    a, b = operands(1, rows, 24, 72)
    once = b[:, :1] if axis == 1 else b[:, :, :1]
    check(a, np.broadcast_to(once, b.shape), Call(mode, lanes=1, family=family))


@pytest.mark.parametrize("extents", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5)], ids=str)
def test_nothing_is_done_for_an_empty_result(extents: tuple[int, ...]) -> None:
    assert product(*operands(*extents)).size == 0


def test_a_sum_of_nothing_is_zero() -> None:
    assert (product(*operands(2, 3, 4, 0)) == 0.0).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", MODES)
def test_infinities_and_nan_come_out_where_numpy_has_them(mode: str, family: str) -> None:
    a, b = operands(1, 20, 22, 19 if family == "none" else 70)
    a[0, 3, 4], a[0, 5, 6], a[0, 7, 8] = np.inf, -np.inf, np.nan
    b[0, 9, 4], b[0, 10, 6], b[0, 11, 3] = 0.0, np.inf, np.nan
    a, b = stored(a, mode), stored(b, mode)
    found = product(a, b, Call(mode, family=family))
    with np.errstate(invalid="ignore"):
        exact = np.einsum("bmk,bnk->bmn", widened(a, mode), widened(b, mode))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    infinite = np.isinf(exact)
    np.testing.assert_array_equal(np.isinf(found), infinite)
    np.testing.assert_array_equal(found[infinite], exact[infinite])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", MODES)
def test_small_integers_are_exact(mode: str, family: str) -> None:
    random = np.random.default_rng(1)
    a, b = (
        random.integers(-9, 10, shape).astype(np.float32) for shape in ((1, 40, 90), (1, 66, 90))
    )
    found = product(stored(a, mode), stored(b, mode), Call(mode, family=family))
    np.testing.assert_array_equal(found, np.einsum("bmk,bnk->bmn", a, b))


def test_neither_wide_indices_nor_single_lanes_change_a_bit() -> None:
    a, b = operands(2, 9, 70, 40)
    first = product(a, b)
    for call in (
        Call(lanes=1),
        Call(narrow=False),
        Call(aligned=False),
        Call(lanes=1, narrow=False),
    ):
        np.testing.assert_array_equal(product(a, b, call), first)


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_operands_may_lie_at_any_address(shift: int) -> None:
    for family, k in (("none", 21), ("small", 21), ("small", 36)):
        check(*operands(1, 12, 34, k), Call(family=family), shift=shift)


@pytest.mark.parametrize("family", ["none", "small"])
def test_the_order_of_threads_changes_nothing(family: str) -> None:
    for extents in ((1, 33, 70, 40), (1, 3, 40, 5000), (1, 16, 9, 300)):
        a, b = operands(*extents)
        across = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)
        for other in (b, across):
            first = product(a, other, Call(lanes=1, family=family))
            for order in ("reverse", "seeded"):
                call = Call(lanes=1, family=family, options={"order": order})
                np.testing.assert_array_equal(product(a, other, call), first)


@pytest.mark.parametrize("family", ["none", "small"])
@pytest.mark.parametrize("guard", ["end", "front"])
def test_nothing_beside_the_operands_is_read(guard: str, family: str) -> None:
    for extents in ((2, 19, 21, 18), (1, 5, 66, 131), (1, 17, 3, 64)):
        check(*operands(*extents), Call(lanes=1, family=family, options={"guard": guard}))


# What may be broken, the extents at which it shows, and whether b lies across k.
FAULTS = {
    "the edge of k": ("k_of(i) < depth;", "k_of(i) <= depth;", (20, 20, 33), False),
    "the edge of copies": ("left > 0 ? 16 : 0", "16", (20, 20, 36), False),
    "a slice of sums": ("slice < Tile::kSlices;", "slice < 1;", (20, 20, 36), False),
    "half a warp": ("__shfl_xor_sync(~0u, all[i][j], 16)", "0.0f", (20, 20, 36), False),
    "a stage not awaited": (
        "await_copies<kStages - 2>();\n                        __sync",
        "__sync",
        (20, 20, 200),
        False,
    ),
    "a stage read too soon": (
        "__syncthreads();  // the next stage",
        "// the next stage",
        (70, 70, 100),
        False,
    ),
    "a block's next tile": ("tile += gridDim.x", "tile += 2 * gridDim.x", (70, 150, 33), False),
    "the last k of dot products": ("from, left > 0 ? 16 : 0", "from, 16", (1, 9, 132), False),
    "the last k of words": ("j < left ? 4 : 0", "4", (1, 9, 131), False),
    "the last rows of dot products": ("r < rows ? left : 0", "left", (1, 9, 4096), False),
    "the rows of few": ("f < p.few_rows ? left : 0", "left", (3, 9, 132), False),
    "a stage of the ring read too soon": (
        "await_stages(stages - 2);\n            __syncthreads();",
        "await_stages(stages - 2);",
        (16, 70, 1024),
        False,
    ),
    "a stage of the ring not awaited": (
        "await_stages(stages - 2);",
        "await_stages(stages - 1);",
        (3, 70, 1024),
        False,
    ),
    "a block's next task": (
        "task += gridDim.x;\n                begin",
        "begin",
        (16, 150, 64),
        False,
    ),
    "a stretch of sums": ("kept[i] += sums[i]", "kept[i] = sums[i]", (1, 9, 11000), False),
    "a warp's part": ("part < plan.parts; ++part", "part < 1; ++part", (1, 9, 4096), False),
    "a block's part": (
        "if (first + i < splits) sum +=",
        "if (first + i < 1) sum +=",
        (1, 2, 20000),
        False,
    ),
    "the edge of columns": (
        "!kPacked && lane + 32 * j < rows ?",
        "!kPacked ?",
        (3, 39, 50),
        True,
    ),
    "the rows of a warp": ("= p.m - first;", "= p.m;", (70, 40, 9), False),
    "the last rows of a warp": ("? left : rows_each)", "? rows_each : left)", (70, 40, 9), False),
    "rows read too soon": (
        "__syncwarp();\n            if (task.column",
        "if (task.column",
        (40, 40, 9),
        False,
    ),
    "the last of short sums": ("row < count && at < k;", "row < count;", (40, 40, 9), False),
    "the columns of a warp": ("(task % strips * 32 +", "(0 * 32 +", (40, 70, 9), False),
    "one row of few": ("f * p.few_step", "0 * p.few_step", (3, 40, 64), True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_kernel_shows(fault: str) -> None:
    sound, broken, extents, across = FAULTS[fault]
    source = text(("Faithful",), lanes=(1,))
    assert sound in source
    a, b = operands(1, *extents)
    if across:
        b = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)
    calls = [Call(lanes=1, multiprocessors=count) for count in (132, 1)]  # blocks of many tiles
    for call in calls:
        check(a, b, call)
    with pytest.raises((EmulationFault, AssertionError)):
        for call in calls:
            check(a, b, call, source=source.replace(sound, broken))


SLOW = pytest.mark.slow
COMPILED = [
    ("sm_80", "mma", ("Faithful",)),
    ("sm_80", "mma", ("Half",)),
    ("sm_90a", "sm90", ("Faithful",)),
    pytest.param("sm_90a", "sm90", ("Half", "Bfloat16"), marks=SLOW),
    pytest.param("sm_80", "none", ("Bfloat16",), marks=SLOW),
    pytest.param("sm_90a", "mma", ("Tf32", "Half", "Bfloat16"), marks=SLOW),
    pytest.param("sm_90a", "sm90", ("Tf32",), marks=SLOW),
    pytest.param("sm_90a", "none", ("Faithful", "Half"), marks=SLOW),
    ("sm_90a", "small", ("Faithful", "Half")),
]


@needs_nvcc
@pytest.mark.parametrize(("arch", "family", "modes"), COMPILED)
def test_the_kernels_compile_without_warnings_and_spills(
    arch: str, family: str, modes: tuple[str, ...]
) -> None:
    uses = compile_cuda(text(modes, lanes=(4,), family=family), arch)
    require_no_spills(uses)
    # Floats have a kernel that copies them four at a time, too.
    floats = [mode for mode in modes if MODES[mode] == "float"]
    assert len([use for use in uses if "fma_product" in use.name]) == len(modes) + len(floats)


@needs_nvcc
@SLOW
def test_a_branch_around_the_epilogue_would_serialise_the_products() -> None:
    """What ptxas tells of that, it tells as information, and is easily missed."""
    whole = text(("Faithful",), lanes=(4,), family="sm90")
    head = whole.index("{", whole.index(") {", whole.index("void give_sums"))) + 1
    broken = f"{whole[:head]}\n    if (to.row >= to.m) return;{whole[head:]}"
    serialised = [use.name for use in compile_cuda(broken, "sm_90a") if use.serialised]
    assert serialised and all("contract_sm90_kernel" in name for name in serialised)
