"""Functors of the pointwise skeleton whose operands are contiguous along another axis than others.

The functors are written out here, and what they are given lies in memory in every way.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from tests.emulation.emulate import EmulationFault, Shifted, emulate, emulate_orders
from tests.kernels import TORCH, by_table, memory_of, poisoned

from opweld.device import pieces
from opweld.ir.types import DType

Order = tuple[int, ...]
ROWS, COLUMNS = (0, 1, 2), (0, 2, 1)
"""Axes of (outer, row, column) in memory, from the outermost on."""


@dataclass(frozen=True)
class Functor:
    """`types` are those of the operands and the results, `axes` what they lie along; `text` is what
    is computed and `of` the same for arrays.
    """

    types: tuple[DType, ...]
    results: int
    axes: tuple[Order, ...]
    width: int
    text: str
    of: str


IDENTITY = ((0, 1, 2), (0, 1, 2))
FUNCTORS = {
    "bytes": Functor((DType.I8, DType.I8), 1, IDENTITY, 16, "y = x0;", "x0"),
    "halves": Functor((DType.F16, DType.F16), 1, IDENTITY, 8, "y = x0;", "x0"),
    "floats": Functor((DType.F32, DType.F32), 1, IDENTITY, 4, "y = x0 * 2 + 1;", "x0 * 2 + 1"),
    "doubles": Functor((DType.F64, DType.F64), 1, IDENTITY, 2, "y = x0;", "x0"),
    "permuted": Functor(
        (DType.F32, DType.F32), 1, ((0, 2, 1), (0, 1, 2)), 4, "y = x0;", "x0.swapaxes(1, 2)"
    ),
    "several": Functor(
        (DType.F32, DType.F64, DType.F32, DType.I8, DType.F32, DType.F64),
        2,
        (*([(0, 1, 2)] * 2), (1,), *([(0, 1, 2)] * 3)),
        2,
        "y = x0 * x2 + x3; z = x1 - x0;",
        "(x0 * x2[:, None] + x3, x1 - x0)",
    ),
    "vectors": Functor(
        (DType.F32,) * 5,
        1,
        ((0, 1, 2), (1,), (2,), (0,), (0, 1, 2)),
        4,
        "y = (x0 - x1) * x2 + x3;",
        "(x0 - x1[:, None]) * x2 + x3[:, None, None]",
    ),
    "quotient": Functor(
        (DType.I32, DType.I32, DType.I32), 1, ((0, 1, 2),) * 3, 4, "y = x0 / x1;", "x0 // x1"
    ),
}
SPELLED = {
    DType.I8: "int8_t",
    DType.I32: "int32_t",
    DType.F16: "op::half",
    DType.F32: "float",
    DType.F64: "double",
}


def text_of(name: str, functor: Functor) -> str:
    given = len(functor.types) - functor.results
    params, operands = [], []
    for i, (dtype, axes) in enumerate(zip(functor.types, functor.axes, strict=True)):
        kind = SPELLED[dtype]
        params.append(f"{kind} x{i}" if i < given else f"{kind}& {'yz'[i - given]}")
        along = ", ".join(map(str, axes))
        operands.append(f"op::Along<{'const ' if i < given else ''}{kind}, {along}>")
    return f"""struct {name}_element {{
  using Operands = op::Types<{", ".join(operands)}>;
  static constexpr int kRank = 3, kWidth = {functor.width}, kThreads = 128;
  OPWELD_FN void of({", ".join(params)}) {{ {functor.text} }}
}};
extern "C" int {name}_launch(const TensorView* operands, void* stream) {{
  return op::pointwise_transposed<{name}_element>(operands, stream, {name}_element::Operands());
}}
"""


def whole_text() -> str:
    types = sorted({SPELLED[t].removeprefix("op::") for f in FUNCTORS.values() for t in f.types})
    needed = pieces(("pointwise_transposed", *(f"type_of_{each}" for each in types)))
    return "\n".join([*needed, *(text_of(*each) for each in FUNCTORS.items())])


TEXT = by_table(whole_text())


def laid_out(array: np.ndarray, order: Order, gap: int = 0) -> np.ndarray:
    """The same values with their axes in memory in an order, and so many more along the last."""
    sizes = [array.shape[axis] for axis in order]
    memory = np.zeros([*sizes[:-1], sizes[-1] + gap], array.dtype)[..., : sizes[-1]]
    view = memory.transpose(np.argsort(order))
    view[...] = array
    return view


@dataclass(frozen=True)
class Call:
    """How the operands of a call lie: the orders of all with three axes, in turn."""

    sizes: tuple[int, int, int]
    orders: tuple[Order, ...] = (ROWS, COLUMNS)
    gap: int = 0
    shift: int = 0
    broadcast: tuple[int, ...] = ()


def operands(functor: Functor, call: Call, seed: int = 0) -> list[np.ndarray]:
    """What is read; the first one has size 1 along the axes that are broadcast."""
    rng = np.random.default_rng(seed)
    found, number = [], 0
    types = functor.types[: -functor.results]
    for i, (dtype, axes) in enumerate(zip(types, functor.axes, strict=False)):
        shape = [call.sizes[a] if i or a not in call.broadcast else 1 for a in axes]
        kind = np.dtype(poisoned((0,), dtype).dtype)
        array = rng.integers(1, 100, shape).astype(kind)
        if len(shape) == 3:
            order = call.orders[number % len(call.orders)]
            own = tuple(axes.index(a) for a in order)
            array, number = laid_out(array, own, call.gap), number + 1
        found.append(array)
    return found


def run(name: str, call: Call, text: str = TEXT, orders: bool = False) -> None:
    functor = FUNCTORS[name]
    given = operands(functor, call)
    results, memories = [], []
    for k, dtype in enumerate(functor.types[-functor.results :]):
        order = call.orders[(len(given) + k) % len(call.orders)]
        made = laid_out(poisoned(call.sizes, dtype), order, call.gap)
        memory = np.ascontiguousarray(memory_of(made))
        memory.view(np.uint8)[...] = 0xA5
        results.append(made)
        memories.append(memory)
    table = []
    for dtype, array in zip(functor.types, (*given, *results), strict=True):
        steps = [step // array.itemsize for step in array.strides]
        table += [TORCH[dtype], array.ndim, *array.shape, *steps]
    arrays: list[np.ndarray | Shifted] = [*map(memory_of, given), *memories]
    if call.shift:
        arrays = [Shifted(array, call.shift * array.itemsize) for array in map(_plain, arrays)]
    launch = emulate_orders if orders else emulate
    launch(text, f"{name}_by_table", [np.array(table, np.int64), 0, *arrays])
    with np.errstate(all="ignore"):
        wanted = eval(functor.of, {f"x{i}": array for i, array in enumerate(given)})
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for made, memory, expected in zip(results, memories, wanted, strict=True):
        if not made.size:
            continue
        written = np.lib.stride_tricks.as_strided(memory, made.shape, made.strides)
        np.testing.assert_array_equal(written, np.broadcast_to(expected, made.shape))
        written[...] = 0
        words = memory.view(np.uint8).reshape(memory.size, -1)
        assert set(np.unique(words[memory != 0])) <= {0xA5}, "it writes between the elements"


def _plain(array: np.ndarray | Shifted) -> np.ndarray:
    return array.array if isinstance(array, Shifted) else array


LENGTHS = (2, 3, 31, 32, 33, 64, 65, 130)
ROUND_TILES = [Call((2, *sizes)) for sizes in product(LENGTHS, LENGTHS)]
OTHER_CALLS = [
    Call((3, 49, 66), gap=1),
    Call((3, 48, 64), gap=4),
    Call((2, 48, 64), shift=1),
    Call((2, 256, 3), shift=1),
    Call((1, 700, 3)),
    Call((1, 3, 700)),
    Call((2, 3, 2500), (COLUMNS, ROWS)),
    Call((5, 40, 36), ((1, 0, 2), (2, 0, 1))),
    Call((5, 40, 36), ((1, 2, 0), (2, 1, 0))),
    Call((0, 40, 36)),
    Call((2, 0, 36)),
    Call((3, 40, 36), broadcast=(0,)),
    Call((3, 40, 36), broadcast=(1,)),
    Call((3, 40, 36), broadcast=(2,)),
    Call((3, 40, 36), (ROWS, ROWS, COLUMNS)),
    Call((3, 40, 36), (COLUMNS, COLUMNS, ROWS)),
    Call((3, 40, 36), (ROWS, COLUMNS, COLUMNS)),
    Call((3, 37, 35), (ROWS, COLUMNS, (2, 1, 0))),
]


@pytest.mark.parametrize("name", ["bytes", "halves", "floats", "doubles", "several", "vectors"])
def test_any_tile_has_its_end(name: str) -> None:
    for call in ROUND_TILES:
        run(name, call)


@pytest.mark.parametrize("name", FUNCTORS)
def test_operands_lie_in_any_way(name: str) -> None:
    for call in OTHER_CALLS:
        run(name, call)


@pytest.mark.parametrize("name", ["halves", "several"])
def test_threads_run_in_any_order(name: str) -> None:
    for call in (Call((2, 65, 70)), Call((2, 3, 300)), Call((1, 48, 64), (COLUMNS, ROWS, ROWS))):
        run(name, call, orders=True)


WITHOUT = {
    "the barrier after what is read": (
        "    (read(x), ...);\n    __syncthreads();",
        "(read(x), ...);",
    ),
    "the barrier before what is written": (
        "    __syncthreads();\n    (write(x), ...);",
        "(write(x), ...);",
    ),
    "room for a row": ("((row - 1) / items + 1 | 1) * items", "(row - 1) / items * items"),
    "ends of tiles": (
        "left[a] = min(all.tile[a].by, all.sizes[a].by - along)",
        "left[a] = all.tile[a].by",
    ),
    "alignment": ("address % std::min(16, kWidth * item_bytes) == 0 && ", ""),
    "what the next place along a row reads": ("places.at[0] != before", "before < 0"),
    "the strides of outer axes": ("packed &= strides[a][i] % kWidth == 0", "packed &= true"),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_nothing_is_left_out(what: str) -> None:
    """Each of these is needed for some call."""
    before, after = WITHOUT[what]
    assert before in TEXT
    text = TEXT.replace(before, after)
    with pytest.raises((EmulationFault, AssertionError)):
        for call in (*OTHER_CALLS, Call((2, 65, 70)), Call((3, 21, 33))):
            run("several", call, text, orders=True)
            run("floats", call, text, orders=True)
            run("vectors", call, text, orders=True)


def test_tiles_are_taken_where_axes_differ() -> None:
    """Without shared memory for them there is an error where there are any."""
    text = TEXT.replace("through[i] = strides[1][i] == 1", "through[i] = num > 0 ? throw 1 : 1")
    assert text != TEXT
    run("floats", Call((2, 40, 36), (ROWS, ROWS)), text)
    with pytest.raises(EmulationFault):
        run("floats", Call((2, 40, 36)), text)


TILE_OF = f"""
extern "C" int tile_of(int64_t* tile, int64_t channels, int64_t pixels, void*) {{
    const int64_t sizes[3] = {{2, channels, pixels}};
    const int64_t first[3] = {{channels * pixels, pixels, 1}};
    const int64_t last[3] = {{channels * pixels, 1, channels}};
    const int type = {TORCH[DType.F32]};
    const TensorView x[2] = {{{{tile, type, 3, sizes, first}}, {{tile, type, 3, sizes, last}}}};
    op::ElementLayout<3, 2> all;
    op::laid_out<floats_element>(x, all, floats_element::Operands());
    const op::TileLayout<floats_element, 2> tiled(all, {{4, 4}});
    tile[0] = tiled.tile[0].by, tile[1] = tiled.tile[1].by;
    return 0;
}}
"""


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((64, 3136), (64, 32)),
        ((96, 3136), (48, 32)),  # 64 and half a tile of as many otherwise
        ((48, 3136), (48, 32)),  # and not the 42 pixels that there would be room for
        ((192, 784), (64, 32)),
        ((3, 50176), (3, 320)),  # a tile where no packet ends with a row has half as much
        ((49, 66), (49, 20)),  # fewer than a line
    ],
)
def test_axes_are_cut_evenly(sizes: tuple[int, int], expected: tuple[int, int]) -> None:
    found = np.zeros(2, np.int64)
    emulate(TEXT + TILE_OF, "tile_of", [found, *sizes])
    assert tuple(found) == expected


SCALED = Functor((DType.F32,) * 3, 1, ((0, 1, 2), (1,), (0, 1, 2)), 4, "y = x0 * x1;", "")
RUNS_ALONG = f"""{text_of("scaled", SCALED)}
extern "C" int runs_along(int64_t* size, int64_t channels, int64_t pixels, void*) {{
    const int64_t sizes[3] = {{2, channels, pixels}}, one = 1;
    const int64_t first[3] = {{channels * pixels, pixels, 1}};
    const int64_t last[3] = {{channels * pixels, 1, channels}};
    const int type = {TORCH[DType.F32]};
    const TensorView x[3] = {{{{size, type, 3, sizes, last}}, {{size, type, 1, sizes + 1, &one}},
                              {{size, type, 3, sizes, first}}}};
    op::ElementLayout<3, 3> all;
    op::laid_out<scaled_element>(x, all, scaled_element::Operands());
    size[0] = op::TileLayout<scaled_element, 3>(all, {{4, 4, 4}}).sizes[0].by;
    return 0;
}}
"""


@pytest.mark.parametrize(
    ("sizes", "along"), [((64, 3136), 64), ((256, 4096), 256), ((96, 3136), 3136), ((3, 500), 500)]
)
def test_threads_stay_at_their_place_of_a_vector(sizes: tuple[int, int], along: int) -> None:
    """They run along channels where their next place is the same one, else along the result."""
    found = np.zeros(1, np.int64)
    emulate(TEXT + RUNS_ALONG, "runs_along", [found, *sizes])
    assert tuple(found) == (along,)
