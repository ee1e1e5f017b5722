"""A pointwise group -> its two kernels; the operations after a matrix product -> its epilogue.

The value of each result is followed back from its coordinates through operations and views to
loads; nothing of a view is left but addresses, guards and positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from ..ir.attrs import NO_ATTRS, CastAttrs
from ..ir.expr import (
    Picked,
    Size,
    divides,
    gathers_of,
    picked,
    product,
    substitute,
    symbol,
    symbols_of,
    with_gathers,
)
from ..ir.graph import Node, Origin
from ..ir.index import Coords, align, cat_pieces, flatten, gather_name, through_view, within_padding
from ..ir.kernels.kernel import (
    Access,
    Arg,
    Between,
    Buffer,
    Condition,
    Const,
    Definition,
    Element,
    Gather,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Multiplied,
    Name,
    Pointwise,
    RowScalar,
    Store,
    Test,
)
from ..ir.kernels.product import Product
from ..ir.ops import Kind, Op
from ..ir.plan import Group, MakingElements, PointwiseSchedule
from ..ir.types import DType
from .axes import operands_of
from .names import Names, stride_name, wish_for
from .rounding import rounded_products
from .space import NO_VALUES, extents_of, merge_loops, with_access

Addressing = Callable[[Buffer, Node, Coords], Size]


Origins = Mapping[int, Origin]
"""The user's place and line, by a node's serial."""


def lower_group(
    origins: Origins, group: Group, values: Mapping[str, Size] = NO_VALUES
) -> Pointwise:
    """Both kernels of a group: `contiguous` with few loops and vectors, and `strided`.

    Of a group over named sizes, `values` are those for which accesses are chosen.
    """
    buffers = buffers_of(group)
    body = _body(origins, group, buffers, row_major)
    strided = replace(_body(origins, group, buffers, by_strides), variant="strided")
    return Pointwise(
        group.name,
        _turning(with_access(merge_loops(body), values), group, values),
        strided,
        group.outputs[0].type.shape,
        operands_of(group, strided),
    )


def _turning(kernel: Kernel, group: Group, values: Mapping[str, Size]) -> Kernel:
    """The kernel whose threads go through the first loops, of which no held operand knows."""
    held = {b.name for b in kernel.buffers if not b.written and b.source in group.held}
    loads = [d for d in kernel.definitions if isinstance(d, Load) and d.buffer in held]
    if not loads or kernel.lanes == 1:
        return kernel
    known = {name for load in loads for name in symbols_of(load.address)}
    first = list(takewhile(lambda loop: loop.var not in known, kernel.loops[:-1]))
    inner = product(loop.extent for loop in kernel.loops[len(first) :])
    if not divides(kernel.lanes, substitute(inner, values)):
        return kernel
    unmet = () if divides(kernel.lanes, inner) else (inner,)
    multiples = tuple(dict.fromkeys((*kernel.multiples, *unmet)))
    return replace(kernel, turned=len(first), multiples=multiples)


def buffers_of(group: Group) -> tuple[Buffer, ...]:
    """A buffer for each operand and each result."""
    names = Names()
    inputs = [buffer_of(names, node, i) for i, node in enumerate(group.inputs)]
    if group.tensor_list is not None and group.listed is not None:
        axis = group.tensor_list.attrs.dim
        inputs[group.listed] = replace(inputs[group.listed], listed=axis)
    single = len(group.outputs) == 1
    outputs = [
        buffer_of(names, node, i, "result" if single else f"result{i}")
        for i, node in enumerate(group.outputs)
    ]
    return (*inputs, *outputs)


def row_major_kernel(origins: Origins, group: Group, buffers: tuple[Buffer, ...]) -> Kernel:
    """The kernel over row-major operands, with few loops and vectors."""
    return with_access(merge_loops(_body(origins, group, buffers, row_major)))


def strided_kernel(origins: Origins, group: Group, buffers: tuple[Buffer, ...]) -> Kernel:
    """The kernel over operands of any strides, an element at a time."""
    return _body(origins, group, buffers, by_strides)


def buffer_of(names: Names, node: Node, index: int, result: str = "") -> Buffer:
    """A buffer for an operand, or for what is called `result`."""
    name = names.fresh(result or wish_for(node))
    return Buffer(name, node.type.dtype, bool(result), index, node.type.shape, str(node.type))


def row_major(buffer: Buffer, node: Node, coords: Coords) -> Size:
    return flatten(coords, node.type.shape)


def by_strides(buffer: Buffer, node: Node, coords: Coords) -> Size:
    address: Size = 0
    for axis, (coordinate, size) in enumerate(zip(coords, node.type.shape, strict=True)):
        if size != 1 or gathers_of(coordinate):
            address = address + coordinate * symbol(stride_name(buffer.name, axis))
    return address


@dataclass(slots=True)
class Builder:
    """Definitions and body of one kernel, made while values are followed to their loads.

    `given` are scalars of a row, by the node that made them and where it is evaluated. `picks` are
    the nodes whose indices tell places, by what expressions call these; `places` are the names that
    kernels of one group give to them. `rounded` are the serials of `rounded_products`.
    """

    origins: Origins
    buffers: dict[int, Buffer]
    names: Names
    address: Addressing
    bounds: dict[str, Size]
    anchor: Node | None = None
    product: Product | None = None
    given: Mapping[tuple[int, Coords], RowScalar] = field(default_factory=dict)
    picks: Mapping[str, Node] = field(default_factory=dict)
    places: dict[Gather, str] = field(default_factory=dict)
    rounded: frozenset[int] = frozenset()
    definitions: list[Definition] = field(default_factory=list)
    lets: list[Let] = field(default_factory=list)
    known: dict[object, Arg] = field(default_factory=dict)
    line: str = ""

    def value(self, node: Node, coords: Coords, guard: Condition) -> Arg:
        """The scalar that `node` has at `coords`; outside `guard` it may be anything."""
        while _is_plain_view(node) and node.serial not in self.buffers:
            coords = through_view(node, coords, self.bounds)
            node = node.inputs[0]
        key = (node.serial, coords, guard if node.op is not Op.CONST else ())
        if key not in self.known:
            self.known[key] = self._make(node, coords, guard)
        return self.known[key]

    def _make(self, node: Node, coords: Coords, guard: Condition) -> Arg:
        if node.serial in self.buffers:
            return self._load(node, coords, guard)
        if (node.serial, coords) in self.given:
            given = self.given[node.serial, coords]
            return self._define(given, ("given", given.name))
        if node is self.anchor:
            return self._multiplied(node, coords)
        if node.op is Op.CONST:
            return self._const(node)
        if node.op is Op.IOTA:
            return self._iota(node, coords[0])
        if node.op is Op.CAT:
            return self._cat(node, coords, guard)
        if node.op is Op.PAD:
            return self._pad(node, coords, guard)
        args = [self.value(n, align(coords, n.type.shape), guard) for n in node.inputs]
        return self._let(node, node.op, args, node.inputs[-1].type.dtype, node.attrs)

    def _load(self, node: Node, coords: Coords, guard: Condition) -> Arg:
        buffer = self.buffers[node.serial]
        address = self.address(buffer, node, coords)
        if _is_everywhere(node, address, guard):
            guard = ()
        address, guard = self._told(address, guard), self._told_condition(guard)
        name = self.names.fresh(buffer.name, always_number=True)
        load = Load(name, buffer.name, node.type.dtype, address, Access.LANE, guard)
        return self._define(load, (buffer.name, coords, guard))

    def _multiplied(self, call: Node, coords: Coords) -> Arg:
        """alpha * product + beta * added; that of attention, or of a convolution, as it is"""
        product, dtype = self.product, call.type.dtype
        name = self.names.fresh("product", always_number=True)
        value = self._define(Multiplied(name, dtype), call.serial)
        if product is None:
            return value
        if product.alpha != 1:
            value = self._let(call, Op.MUL, [value, Const(float(product.alpha), dtype)], dtype)
        if product.added is None:
            return value
        added = self.value(product.added, align(coords, product.added.type.shape), ())
        if product.beta != 1:
            added = self._let(call, Op.MUL, [added, Const(float(product.beta), dtype)], dtype)
        return self._let(call, Op.ADD, [value, added], dtype)

    def _define(self, definition: Definition, key: object) -> Arg:
        if key not in self.known:
            self.definitions.append(definition)
            self.known[key] = Name(definition.name)
        return self.known[key]

    def _told(self, value: Size, guard: Condition) -> Size:
        """The value by the places that indices tell, which are read first."""
        if not gathers_of(value):
            return value
        return with_gathers(value, lambda place: self._picked(place, guard))

    def _told_condition(self, condition: Condition) -> Condition:
        """Each part holds where those before it do."""
        told: Condition = ()
        for between in condition:
            told = (*told, replace(between, expr=self._told(between.expr, told)))
        return told

    def _picked(self, place: Picked, guard: Condition) -> Size:
        if place.name not in self.picks:
            return picked(place)  # it is told already
        node = self.picks[place.name]
        index = self._read(node.inputs[1], place.coords, guard)
        read = ("", index.expr) if isinstance(index, Index) else (index.buffer, index.address)
        pick = Gather(
            "",
            read[0],
            (read[1],),
            place.extent,
            node.attrs.wraps,
            node.attrs.ignored,
            Access.LANE,
            self._told_condition(guard),
        )
        name = self._place_name(pick)
        self._define(replace(pick, name=name, index=index.name), pick)
        return picked(Picked(name, pick.coords, place.extent))

    def _read(self, index: Node, coords: Coords, guard: Condition) -> Load | Index:
        """The definition of a number that an index holds: it is in memory, or counted."""
        arg = self.value(index, coords, guard)
        if isinstance(arg, Const):
            arg = self._index_as(index, int(arg.value), DType.I64)
        read = next(d for d in self.definitions if isinstance(arg, Name) and d.name == arg.text)
        assert isinstance(read, Load | Index), "an index is in memory"
        return read

    def _place_name(self, pick: Gather) -> str:
        """The same for what is the same in all kernels of a group."""
        if pick not in self.places:
            name = self.names.fresh("place", always_number=True)
            while name in self.places.values():
                name = self.names.fresh("place", always_number=True)
            self.places[pick] = name
        return self.places[pick]

    def _const(self, node: Node) -> Arg:
        value = node.attrs.value
        if not hasattr(value, "terms"):
            return Const(value, node.type.dtype)
        return self._index_as(node, value, node.type.dtype)

    def _index_as(self, node: Node, expr: Size, dtype: DType) -> Arg:
        expr = self._told(expr, ())
        key = ("index", expr)
        if key not in self.known:
            name = self.names.fresh("index", always_number=True)
            self._define(Index(name, expr, Access.LANE), key)
        arg = self.known[key]
        if dtype is DType.I64:
            return arg
        return self._let(node, Op.CAST, [arg], DType.I64, CastAttrs(dtype))

    def _iota(self, node: Node, coordinate: Size) -> Arg:
        start, step = node.attrs.start, node.attrs.step
        dtype = node.type.dtype
        if isinstance(start, int) and isinstance(step, int):
            return self._index_as(node, coordinate * step + start, dtype)
        position = self._index_as(node, coordinate, dtype)
        scaled = self._let(node, Op.MUL, [position, Const(step, dtype)], dtype)
        return self._let(node, Op.ADD, [Const(start, dtype), scaled], dtype)

    def _cat(self, node: Node, coords: Coords, guard: Condition) -> Arg:
        """The operand that holds the position: a chain of choices, last operand innermost."""
        dim = node.attrs.dim
        pieces = []
        for operand, start, moved in cat_pieces(node, coords):
            inside = Between(coords[dim], start, start + operand.type.shape[dim])
            within = (*guard, inside)
            pieces.append((self._test(within), self.value(operand, moved, within)))
        chosen = pieces[-1][1]
        for test, arg in reversed(pieces[:-1]):
            chosen = self._choose(node, test, arg, chosen)
        return chosen

    def _pad(self, node: Node, coords: Coords, guard: Condition) -> Arg:
        operand = node.inputs[0]
        tests: list[Between] = []
        for axis, (before, after) in enumerate(
            zip(node.attrs.before, node.attrs.after, strict=True)
        ):
            if before != 0 or after != 0:
                tests.append(Between(coords[axis], before, before + operand.type.shape[axis]))
        within = (*guard, *tests)
        place = within_padding(node, coords)
        if not tests:
            return self.value(operand, place, guard)
        test = self._test(within)
        chosen = self.value(operand, place, within)
        return self._choose(node, test, chosen, Const(node.attrs.value, node.type.dtype))

    def _test(self, condition: Condition) -> Arg:
        """The name of a condition. It holds what is around it, too: outside, a size that is divided
        by may be 0.
        """
        condition = self._told_condition(condition)
        key = ("test", condition)
        if key not in self.known:
            name = self.names.fresh("inside", always_number=True)
            self._define(Test(name, condition, Access.LANE), key)
        return self.known[key]

    def _choose(self, node: Node, test: Arg, yes: Arg, no: Arg) -> Arg:
        return self._let(node, Op.WHERE, [test, yes, no], node.type.dtype)

    def _let(
        self, node: Node, op: Op, args: list[Arg], operands: DType, attrs: Any = NO_ATTRS
    ) -> Arg:
        name = self.names.fresh(op.value, always_number=True)
        dtype = attrs.dtype if isinstance(attrs, CastAttrs) else node.type.dtype
        comment = self._comment(node)
        rounded = node.serial in self.rounded and dtype.is_float
        self.lets.append(Let(name, dtype, op, tuple(args), operands, attrs, comment, rounded))
        return Name(name)

    def _comment(self, node: Node) -> str:
        """The user's line, where it is not the line of the statement before."""
        origin = self.origins.get(node.serial)
        line = f"{origin[0]}  {origin[1]}" if origin else self.line
        fresh = line != self.line
        self.line = line
        return line if fresh else ""


def gathers_in(nodes: Iterable[Node]) -> dict[str, Node]:
    """The GATHERs among the nodes, by what expressions call the places that their indices tell."""
    return {gather_name(node): node for node in nodes if node.op is Op.GATHER}


def _is_everywhere(node: Node, address: Size, guard: Condition) -> bool:
    """Whether a load needs no guard: it reads an element of its own wherever the guard holds, so
    there is one, and the guard does not say which.
    """
    guarded = {name for between in guard for name in symbols_of(between.expr)}
    if 0 in node.type.shape or gathers_of(address):
        return False
    return not guarded & symbols_of(address)


def _is_plain_view(node: Node) -> bool:
    """Whether an element of the view is an element of its only operand, under no condition."""
    return node.kind is Kind.VIEW and node.op not in (Op.CAT, Op.PAD)


def _body(
    origins: Origins,
    group: Group,
    buffers: tuple[Buffer, ...],
    address: Addressing,
) -> Kernel:
    shape = group.outputs[0].type.shape
    loops = tuple(Loop(f"i{axis}", size) for axis, size in enumerate(shape) if size != 1)
    bounds = {loop.var: loop.extent for loop in loops}
    coords = tuple(symbol(f"i{axis}") if size != 1 else 0 for axis, size in enumerate(shape))
    read = {node.serial: buffers[i] for i, node in enumerate(group.inputs)}
    names = Names({buffer.name for buffer in buffers})
    builder = Builder(origins, read, names, address, bounds, group.anchor, group.product)
    builder.picks, builder.rounded = gathers_in(group.nodes), rounded_products(group.nodes)
    results = tuple((node.type.dtype, builder.value(node, coords, ())) for node in group.outputs)
    written = buffers[len(group.inputs) :]
    stores = tuple(
        Store(buffer.name, buffer.dtype, address(buffer, node, coords), index)
        for index, (buffer, node) in enumerate(zip(written, group.outputs, strict=True))
    )
    params = params_of(builder, results)
    element = Element(f"{group.name}_element", params, tuple(builder.lets), results)
    definitions = tuple(builder.definitions)
    schedule = group.schedule
    assert isinstance(schedule, MakingElements), "it makes elements"
    pointwise = schedule if isinstance(schedule, PointwiseSchedule) else None
    rows = address is row_major
    return Kernel(
        name=group.name,
        variant="contiguous",
        comment=group.reason,
        buffers=buffers,
        extents=extents_of(loops, definitions, stores, buffers),
        loops=loops or (Loop("i0", 1),),
        definitions=definitions,
        element=element,
        stores=stores,
        lanes=schedule.lanes if rows else 1,
        vectors=pointwise.vectors if rows and pointwise else 1,
        threads=pointwise.threads if pointwise else 1,
    )


def params_of(
    builder: Builder, results: tuple[tuple[DType, Arg], ...]
) -> tuple[tuple[str, DType], ...]:
    """The definitions that the element reads; some tests only guard loads."""
    args = [arg for let in builder.lets for arg in let.args] + [arg for _, arg in results]
    read = {arg.text for arg in args if isinstance(arg, Name)}
    return tuple((d.name, _dtype(d)) for d in builder.definitions if d.name in read)


def _dtype(definition: Definition) -> DType:
    if isinstance(definition, Load | Multiplied | RowScalar):
        return definition.dtype
    return DType.I64 if isinstance(definition, Index) else DType.BOOL
