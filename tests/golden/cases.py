"""The graphs whose texts are kept: small ones, each for one thing, and the examples."""

from __future__ import annotations

from collections.abc import Callable

from opweld.ir.expr import Size
from opweld.ir.graph import Graph, Node
from opweld.ir.attrs import CastAttrs, EluAttrs, IotaAttrs, GatherAttrs
from opweld.ir.ops import Op
from opweld.ir.types import DType
from tests.unit.ir.graphs import BATCH, graph
from tests.unit.plan.plans import Make


def _cast(m: Make, x: Node, dtype: DType) -> Node:
    return m.arena.make(Op.CAST, x, attrs=CastAttrs(dtype))


class Lines(Make):
    """Nodes with origins: `m.line("y = ...")` says where the nodes that follow come from."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, tuple[str, str]]] = []
        self._number = 10
        self._text = ""
        self._marked = 0

    def line(self, text: str) -> None:
        self._mark()
        self._number += 1
        self._text = text

    def _mark(self) -> None:
        """Gives the nodes made since the last call the line that was current."""
        end = self.arena._next_serial
        if self._text:
            place = (f"model.py:{self._number}", self._text)
            self.lines += [(serial, place) for serial in range(self._marked, end)]
        self._marked = end

    def done(self, name: str, *outputs: Node) -> Graph:
        self._mark()
        return graph(*outputs, name=name, origins=tuple(self.lines))


def broadcasts(m: Lines) -> tuple[Node, ...]:
    """A row, a column and a scalar; two results."""
    x, row, column = m.x("x", BATCH, 24), m.w("norm.weight", 24), m.x("column", BATCH, 1)
    factor = m.w("factor")
    m.line("y = (x + self.norm.weight) * column * self.factor")
    y = m.mul(m.mul(m.add(x, row), column), factor)
    m.line("return torch.sigmoid(y), y > 0")
    return m.sigmoid(y), m.gt(y, 0.0)


def odd_rows(m: Lines) -> tuple[Node, ...]:
    """Rows that are no whole number of packets."""
    x, row = m.x("x", BATCH, 37), m.x("row", 37)
    m.line("return x - row")
    return (m.sub(x, row),)


def short_rows(m: Lines) -> tuple[Node, ...]:
    """A column broadcast over rows of three elements."""
    x, column = m.x("x", BATCH, 5, 3), m.x("column", BATCH, 5, 1)
    m.line("return torch.exp(x * column)")
    return (m.exp(m.mul(x, column)),)


def channels(m: Lines) -> tuple[Node, ...]:
    x, scale = m.x("x", BATCH, 16, 8, 8), m.w("scale", 1, 16, 1, 1)
    m.line("return x * self.scale")
    return (m.mul(x, scale),)


def permuted(m: Lines) -> tuple[Node, ...]:
    x, y = m.x("x", BATCH, 48), m.x("y", 48, BATCH)
    m.line("return x.exp().permute(1, 0) + y")
    return (m.add(m.permute(m.exp(x), 1, 0), y),)


def reshaped(m: Lines) -> tuple[Node, ...]:
    """Heads put apart and turned: addresses divide."""
    x, y = m.x("x", BATCH, 6, 8), m.x("y", BATCH, 4, 12)
    m.line("return torch.tanh(x).reshape(-1, 12, 4).permute(0, 2, 1) * y")
    heads = m.permute(m.reshape(m.tanh(x), BATCH, 12, 4), 0, 2, 1)
    return (m.mul(heads, y),)


def sliced(m: Lines) -> tuple[Node, ...]:
    """A gate: half of the columns times a function of the other half."""
    x = m.x("x", BATCH, 32)
    m.line("a, b = x.chunk(2, 1)")
    a, b = m.slice(x, 1, 0, 16), m.slice(x, 1, 16, 16)
    m.line("return a * torch.sigmoid(b)")
    return (m.mul(a, m.sigmoid(b)),)


def joined(m: Lines) -> tuple[Node, ...]:
    x, y = m.x("x", BATCH, 5), m.x("y", BATCH, 3)
    m.line("return torch.cat((x.exp(), y, -x), 1).relu()")
    return (m.relu(m.cat(1, m.exp(x), y, m.neg(x))),)


def padded(m: Lines) -> tuple[Node, ...]:
    x = m.x("x", BATCH, 4, 5)
    m.line("return F.pad(x, (2, 1, 1, 2)).cos()")
    return (m.cos(m.pad(x, (0, 1, 2), (0, 2, 1))),)


def flipped(m: Lines) -> tuple[Node, ...]:
    x = m.x("x", BATCH, 9)
    m.line("return x - x.flip((0, 1))")
    return (m.sub(x, m.flip(x, 0, 1)),)


def flipped_rows(m: Lines) -> tuple[Node, ...]:
    """Packets in another order of rows: an address with a part below zero."""
    x = m.x("x", BATCH, 6, 16)
    m.line("return x.flip(1).exp()")
    return (m.exp(m.flip(x, 1)),)


def mixed_types(m: Lines) -> tuple[Node, ...]:
    """16-bit operands widened, a mask, results of three types."""
    x, mask = m.x("x", BATCH, 64, dtype=DType.F16), m.x("mask", BATCH, 64, dtype=DType.BOOL)
    m.line("y = torch.where(mask, x.float().exp(), -1.0)")
    y = m.where(mask, m.exp(_cast(m, x, DType.F32)), -1.0)
    m.line("return y, y.half(), ~mask")
    return y, _cast(m, y, DType.F16), m.logical_not(mask)


_BFLOAT16: tuple[tuple[str, tuple[Size, ...]], ...] = (("x", (BATCH, 64)), ("shift", (64,)))


def bfloat16(m: Lines) -> tuple[Node, ...]:
    x, shift = (m.x(name, *shape, dtype=DType.BF16) for name, shape in _BFLOAT16)
    m.line("return F.silu(x + shift) * 0.5")
    half = m.const(0.5, DType.BF16)
    return (m.mul(m.silu(m.add(x, shift)), half),)


def double(m: Lines) -> tuple[Node, ...]:
    x = m.x("x", BATCH, 6, dtype=DType.F64)
    m.line("return F.elu(x, 1.5)")
    return (m.arena.make(Op.ELU, x, attrs=EluAttrs(1.5, 1.0, 1.0)),)


def integers(m: Lines) -> tuple[Node, ...]:
    x, y = (m.x(name, BATCH, 11, dtype=DType.I64) for name in "xy")
    small = m.x("small", BATCH, 11, dtype=DType.U8)
    m.line("return (x * y) ^ -7, torch.maximum(x, y), small + small")
    bits = m.bitwise_xor(m.mul(x, y), m.const(-7, DType.I64))
    return bits, m.maximum(x, y), m.add(small, small)


def library_call(m: Lines) -> tuple[Node, ...]:
    """Two products with their tails: each tail takes the product's memory; a value runs past."""
    x, first, second = (
        m.x("x", BATCH, 64, dtype=DType.F64),
        m.w("first.weight", 64, 64, dtype=DType.F64),
        m.w("second.weight", 64, 64, dtype=DType.F64),
    )
    m.line("h = F.gelu(self.first(x))")
    h = m.gelu(m.call(x, first))
    m.line("return x + torch.tanh(self.second(h))")
    return (m.add(x, m.tanh(m.call(h, second))),)


def small_product(m: Lines) -> tuple[Node, ...]:
    """A matrix product with its tail in one launch, on the CUDA cores: squares of two sizes."""
    x, w = m.x("x", BATCH, 64), m.w("fc.weight", 64, 64)
    m.line("return F.gelu(self.fc(x))")
    return (m.gelu(m.product("linear", x, w, shape=(BATCH, 64))),)


def product(m: Lines) -> tuple[Node, ...]:
    """A matrix product that is a result itself, and its tail with two residuals."""
    x, gain = m.x("x", BATCH, 1024), m.x("gain", BATCH, 1)
    w, bias = m.w("fc.weight", 1024, 1024), m.w("fc.bias", 1024)
    m.line("y = self.fc(x)")
    y = m.product("linear", x, w, bias, shape=(BATCH, 1024))
    m.line("return torch.relu(y) * gain + x, y")
    return m.add(m.mul(m.relu(y), gain), x), y


def batched_product(m: Lines) -> tuple[Node, ...]:
    """Scores of attention: transposed keys, scaled and added to, of an odd length."""
    query, key = m.x("query", BATCH, 8, 511, 64), m.x("key", BATCH, 511, 8, 64)
    mask = m.x("mask", 511, 511)
    m.line("scores = torch.matmul(query, key.permute(0, 2, 3, 1))")
    scores = m.product("matmul", query, m.permute(key, 0, 2, 3, 1), shape=(BATCH, 8, 511, 511))
    m.line("return scores * 0.125 + mask")
    return (m.add(m.mul(scores, 0.125), mask),)


def attention(m: Lines) -> tuple[Node, ...]:
    """Scores with a mask that heads share, softmax, values of another width, and what follows."""
    query, key = m.x("query", BATCH, 8, 100, 64), m.x("key", BATCH, 120, 8, 64)
    value, mask = m.x("value", BATCH, 8, 120, 48), m.x("mask", BATCH, 1, 1, 120)
    m.line("scores = torch.matmul(query, key.permute(0, 2, 3, 1))")
    scores = m.product("matmul", query, m.permute(key, 0, 2, 3, 1), shape=(BATCH, 8, 100, 120))
    m.line("weights = torch.softmax(scores * 0.125 + mask, dim=-1)")
    weights = m.softmax(m.add(m.mul(scores, 0.125), mask), 3)
    m.line("return torch.relu(torch.matmul(weights, value))")
    return (m.relu(m.product("matmul", weights, value, shape=(BATCH, 8, 100, 48))),)


def convolutions(m: Lines) -> tuple[Node, ...]:
    """Three, with a bias, a residual, a step; the first finds its channels before its pixels."""
    x, bias = m.x("x", BATCH, 64, 28, 28), m.w("a.bias", 64)
    m.line("y = F.relu(self.a(x))")
    y = m.relu(_conv2d(m, x, 64, "a", bias, padding=(1, 1)))
    m.line("y = F.relu(self.b(y) + y)")
    y = m.relu(m.add(_conv2d(m, y, 64, "b", padding=(1, 1)), y))
    m.line("return torch.sigmoid(self.c(y)).mean((2, 3))")
    y = m.sigmoid(_conv2d(m, y, 96, "c", stride=(2, 2), dilation=(2, 1)))
    return (m.reduced("mean", y, 2, 3),)


def _conv2d(
    m: Make, x: Node, filters: int, name: str, *bias: Node, **given: tuple[int, int]
) -> Node:
    """3 by 3."""
    batch, channels, *space = x.type.shape
    weight = m.w(f"{name}.weight", filters, channels, 3, 3)
    steps = zip(*(given.get(key, rest) for key, rest in _PLAIN), strict=True)
    out = tuple(
        (size + 2 * padding - 2 * dilation - 1) // stride + 1
        for size, (stride, padding, dilation) in zip(space, steps, strict=True)
    )
    return m.product("conv2d", x, weight, *bias, shape=(batch, filters, *out), **given)


_PLAIN = (("stride", (1, 1)), ("padding", (0, 0)), ("dilation", (1, 1)))


def scaled_product(m: Lines) -> tuple[Node, ...]:
    """Both factors of an addmm, and nothing after it."""
    x, w, bias = m.x("x", BATCH, 2048), m.w("weight", 2048, 1024), m.w("bias", 1024)
    m.line("return torch.addmm(self.bias, x, self.weight, beta=0.5, alpha=2)")
    return (m.product("addmm", bias, x, w, shape=(BATCH, 1024), beta=0.5, alpha=2),)


def prologue(m: Lines) -> tuple[Node, ...]:
    """An activation that its product computes while it splits it."""
    x, gain, w = (
        m.x("x", BATCH, 1024, dtype=DType.BF16),
        m.x("gain", 1024),
        m.w("fc.weight", 2048, 1024),
    )
    m.line("h = F.gelu(x.float() * gain)")
    h = m.gelu(m.mul(_cast(m, x, DType.F32), gain))
    m.line("return torch.relu(self.fc(h))")
    return (m.relu(m.product("linear", h, w, shape=(BATCH, 2048))),)


def row_blocks(m: Lines) -> tuple[Node, ...]:
    """A product that leaves the CPU's caches, with a residual and a mask of the result."""
    x, residual = m.x("x", BATCH, 64), m.x("residual", BATCH, 2048)
    w, bias = m.w("fc.weight", 2048, 64), m.w("fc.bias", 2048)
    m.line("y = self.fc(x)")
    y = m.product("linear", x, w, bias, shape=(BATCH, 2048))
    m.line("return F.relu(y) + residual, y > 0")
    return m.add(m.relu(y), residual), m.gt(y, 0.0)


def scalar(m: Lines) -> tuple[Node, ...]:
    x = m.x("x")
    m.line("return x.exp()")
    return (m.exp(x),)


def sizes_as_numbers(m: Lines) -> tuple[Node, ...]:
    """A mean's divisor and positions of the iteration space."""
    x = m.x("x", BATCH, 10)
    m.line("position = torch.arange(3, 23, 2)")
    position = m.arena.iota(IotaAttrs(3, 2, 10), DType.I64)
    m.line("return x * position / x.shape[0]")
    scaled = m.mul(x, _cast(m, position, DType.F32))
    return (m.div(scaled, m.arena.const(BATCH, DType.F32)),)


def many_operands(m: Lines) -> tuple[Node, ...]:
    names = ("query_projection", "key_projection", "value_projection", "output_projection")
    m.line("return sum(each * each for each in projections)")
    total: Node | None = None
    for name in names:
        x = m.x(name, BATCH, 3, 20)
        square = m.mul(x, x)
        total = square if total is None else m.add(total, square)
    assert total is not None
    return (total,)


def softmax(m: Lines) -> tuple[Node, ...]:
    """Three walks along a row, with scalars of the row between them."""
    x, mask = m.x("x", BATCH, 40), m.x("mask", 40)
    m.line("return torch.softmax(x + mask, dim=-1)")
    return (m.softmax(m.add(x, mask), 1),)


def scans(m: Lines) -> tuple[Node, ...]:
    """What comes before and after two scans, one of them with its places."""
    x, mask = m.x("x", BATCH, 40), m.x("mask", 40)
    m.line("kept = x * mask")
    kept = m.mul(x, mask)
    m.line("largest, place = torch.cummax(kept, dim=1)")
    largest, place = m.scanned("cummax", kept, 1), m.scanned("cummax_place", kept, 1)
    m.line("return torch.cumsum(kept, dim=1) / largest, place")
    return m.div(m.scanned("cumsum", kept, 1), largest), place


def scan_from_the_end(m: Lines) -> tuple[Node, ...]:
    """Along an axis that is not the last, in 16 bits, in reverse and exclusive."""
    x = _cast(m, m.x("x", BATCH, 9, 16, dtype=DType.BF16), DType.F32)
    m.line("return x.flip(1).cumsum(1).flip(1) - x")
    scanned = m.scanned("cumsum", x, 1, reverse=True, exclusive=True)
    return (_cast(m, scanned, DType.BF16),)


def one_long_scan(m: Lines) -> tuple[Node, ...]:
    """A row in pieces, which are folded before they are scanned."""
    x = m.x("x", 1 << 22)
    m.line("return torch.cumsum(x, dim=0)")
    return (m.scanned("cumsum", x, 0),)


def normalised_channels(m: Lines) -> tuple[Node, ...]:
    """Rows that lie across memory, what is computed once for each, and two results."""
    x, weight = m.x("x", BATCH, 6, 5, 4), m.w("weight", 6)
    m.line("rms = torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)")
    mean = m.div(m.reduced("sum", m.mul(x, x), 1), 6.0)
    rms = m.sqrt(m.add(mean, 1e-5))
    m.line("return x / rms * self.weight[:, None, None], rms")
    return m.mul(m.div(x, rms), m.reshape(weight, 6, 1, 1)), rms


def picked_rows(m: Lines) -> tuple[Node, ...]:
    """Rows of a table by the numbers of an index, which two walks read."""
    ids, table = m.x("ids", BATCH, 8, 1, dtype=DType.I64), m.w("table.weight", 1, 100, 64)
    m.line("return torch.softmax(self.table(ids), -1)")
    rows = m.arena.make(Op.GATHER, table, ids, attrs=GatherAttrs(1))
    return (m.softmax(rows, 2),)


def gathered(m: Lines) -> tuple[Node, ...]:
    """Elements of rows, each by a number of its own."""
    x, index = m.x("x", BATCH, 64), m.x("index", BATCH, 32, dtype=DType.I64)
    m.line("return x.gather(1, index).exp()")
    return (m.exp(m.arena.make(Op.GATHER, x, index, attrs=GatherAttrs(1))),)


def mean_squared_error(m: Lines) -> tuple[Node, ...]:
    """One long row, cut in pieces."""
    x, y = m.x("x", BATCH, 4096), m.x("y", BATCH, 4096)
    m.line("return torch.mean((x - y) ** 2)")
    difference = m.sub(x, y)
    total = m.reduced("sum", m.mul(difference, difference), 0, 1)
    count = m.arena.const(BATCH * 4096, DType.F32)
    return (m.reshape(m.div(total, count)),)


def first_of_the_largest(m: Lines) -> tuple[Node, ...]:
    """Places and extremes of half precision, over two axes that are no neighbours."""
    x = m.x("x", 3, BATCH, 16, dtype=DType.F16)
    m.line("return x.amax((0, 2)), x.argmax(2)")
    return m.reduced("amax", x, 0, 2), m.reduced("argmax", x, 2)


def max_pool(m: Lines) -> tuple[Node, ...]:
    """Windows that overlap and reach beyond the edges, with operations before and behind."""
    x, bias = m.x("x", BATCH, 16, 32, 32), m.w("bias", 16, 1, 1)
    m.line("return F.max_pool2d(torch.relu(x + self.bias), 3, 2, 1) * 0.5")
    seen = m.windows(m.relu(m.add(x, bias)), (3, 2, 1, 1), (3, 2, 1, 1), outside=float("-inf"))
    return (m.mul(m.reshape(m.reduced("amax", seen, 0, 1), BATCH, 16, 16, 16), 0.5),)


SMALL: tuple[Callable[[Lines], tuple[Node, ...]], ...] = (
    broadcasts,
    odd_rows,
    short_rows,
    channels,
    permuted,
    reshaped,
    sliced,
    joined,
    padded,
    flipped,
    flipped_rows,
    mixed_types,
    bfloat16,
    double,
    integers,
    library_call,
    small_product,
    product,
    batched_product,
    attention,
    convolutions,
    scaled_product,
    prologue,
    row_blocks,
    scalar,
    sizes_as_numbers,
    many_operands,
    softmax,
    scans,
    scan_from_the_end,
    one_long_scan,
    normalised_channels,
    picked_rows,
    gathered,
    mean_squared_error,
    first_of_the_largest,
    max_pool,
)
EXAMPLES = (
    "gelu",
    "relu",
    "linear_swish",
    "linear_sigmoid",
    "linear_relu",
    "chain",
    "chain_bf16",
)


def small_graph(case: Callable[[Lines], tuple[Node, ...]]) -> Graph:
    m = Lines()
    return m.done(case.__name__, *case(m))
