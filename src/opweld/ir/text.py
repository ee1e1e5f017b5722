"""Canonical text of every value that passes between stages.

Equal values give equal bytes in every process: numbers follow the topological order, never serials,
and nothing iterates a set. A golden file is exactly this text.

graph   = "graph" name, line*, tracked*, update*, "return" structure
line    = "%"number type "=" op operand* attrs ["#" origin]
operand = "%"number | constant | constant":"dtype          the dtype where no other operand tells it
tracked = "track" buffer buffer "towards" operand operand ["momentum" number] ["count" buffer]
update  = ("update" | "assign") buffer "=" operand
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from .attrs import CallAttrs, Operand
from .calls import Chain, place_of
from .contract import Capture, Contract, InputFact, ModuleFact, SymbolFact, Variant, WeightFact
from .expr import Size
from .graph import Graph, Leaf, Node, Record, Structure, Tracking
from .kernels.convolution import INTERVAL, Convolving
from .kernels.kernel import Attending, Contraction, Factor, Kernel, Pointwise, RowBlocks
from .kernels.product import Axis, Matrix
from .kernels.reduction import Reduction, Scan
from .kernels.source import Source
from .kernels.text import folding_text, kernel_text
from .loop import loop_of
from .ops import Kind, Op
from .plan import Group, Plan, Traffic

Names = Mapping[int, str]


@singledispatch
def to_text(value: object) -> str:
    """The text of a Graph, Plan, Pointwise, Contraction, Attending, Reduction, Scan, RowBlocks,
    Kernel, Contract, Capture or Source, with a final newline.

    Raises TypeError for anything else.
    """
    raise TypeError(f"{type(value).__name__} has no canonical text")


@to_text.register
def graph_text(value: Graph) -> str:
    names = node_names(value)
    places = {serial: origin.place for serial, origin in value.origins}
    lines = [
        line
        for node in value.nodes()
        if node.op is not Op.CONST
        for line in (_node_line(node, names, places.get(node.serial)), *_loop_lines(node))
    ]
    return "\n".join([f"graph {value.name}", *lines, *_endings(value, names), ""])


def _loop_lines(node: Node) -> list[str]:
    """The body of a loop, and how its turns are put together."""
    loop = loop_of(node)
    if loop is None:
        return []
    body = graph_text(loop.body).strip().split("\n")[1:]
    inputs = [node.attrs.access for node in loop.body.inputs]
    parts = inputs[loop.carried :][: len(loop.parts)]
    lines = [f"{loop.label} of {loop.turns} turns, carries {', '.join(inputs[: loop.carried])}"]
    for name, part in zip(parts, loop.parts, strict=True):
        length = f" length={part.length}" if part.length else ""
        lines.append(f"{name} axis={part.axis} first={part.first} step={part.step}{length}")
    lines += body
    for each in loop.collected:
        how = f"{'stacked' if each.stacked else 'joined'}{' backwards' * each.backwards}"
        lines.append(f"output {each.output} {how} along {each.axis}")
    lines += [f"output {output} of the last turn" for output in loop.last]
    return [f"  {line}" for line in lines]


@to_text.register
def plan_text(value: Plan) -> str:
    names = node_names(value.graph)
    places = {serial: origin.place for serial, origin in value.graph.origins}
    origins = dict(value.graph.origins)
    groups = []
    for group in value.groups:
        _, across = place_of(group.nodes, origins)
        groups += [*_group_lines(group, names, places), *_across_lines(across)]
    endings = _endings(value.graph, names)
    return "\n".join([f"plan {value.graph.name} for {value.target}", *groups, *endings, ""])


@to_text.register
def _(value: Kernel) -> str:
    return kernel_text(value)


@to_text.register
def _(value: Pointwise) -> str:
    head = f"fused {value.group} {_shape_text(value.shape)}\n"
    return head + kernel_text(value.contiguous) + kernel_text(value.strided)


@to_text.register
def _(value: Contraction) -> str:
    how = f"mode {value.mode.value} tensor cores {value.family}"
    head = f"contraction {value.group} {_shape_text(value.shape)} {how}"
    lines = [
        f"  {name} = {_source_text(factor)}"
        + "".join(f" {role} {_axes_text(axes)}" for role, axes in _roles(factor.axes, letter))
        for name, factor, letter in (("a", value.a, "m"), ("b", value.b, "n"))
    ]
    lines += [f"  by {row.form.value}: {row.range_text(value.mode)}" for row in value.forms]
    held = ["  b is held from call to call"] if value.held else []
    return "\n".join([head, *lines, *held, ""]) + "".join(map(kernel_text, value.kernels))


@to_text.register
def _(value: Convolving) -> str:
    made = value.windows
    lines = [
        f"convolution {value.group} {_shape_text(value.shape)} mode {value.mode.value}, "
        f"{value.columns or 'no'} filters a tile",
        f"  x = inputs[{value.x}] along {', '.join(map(str, made.axes))}",
        f"  weight = inputs[{value.weight}]",
        f"  {'transposed ' * made.transposed}stride {made.stride} padding {made.padding} "
        f"dilation {made.dilation}",
    ]
    if value.in_planes:
        lines.append("  its channels before its space")
    if value.rows:
        lines.append(f"  taps of {value.rows} rows joined")
    if value.phase_columns > 1:
        lines.append(f"  {value.phase_columns} phases of a filter beside each other")
    if value.width != INTERVAL:
        lines.append(f"  intervals of {value.width} channels")
    if value.unpacked:
        lines.append("  pixels as they lie")
    if value.groups[0] > 1:
        lines.append("  {} groups, {} of them a product".format(*value.groups))
    if value.halo:
        lines.append(f"  halos in shared memory, {value.halo}")
    if value.order != tuple(range(len(value.shape))):
        lines.append(f"  written along {', '.join(map(str, value.order))}")
    return "\n".join([*lines, ""]) + kernel_text(value.epilogue)


def _source_text(factor: Factor) -> str:
    return "computed" if factor.source is None else f"inputs[{factor.source}]"


@to_text.register
def _(value: Attending) -> str:
    ways = (("causal", value.causal), ("zeros without keys", value.zeros))
    told = "".join(f" {name}" for name, holds in ways if holds)
    lines = [
        f"attention {value.group} {_shape_text(value.shape)} on {value.family}{told}",
        f"  q {value.q} k {value.k} of {value.depth}, v {value.v} of {value.columns}",
        *([f"  batches along {', '.join(value.alone)} share k and v"] if value.alone else []),
        *([f"  a score is {value.factor} times the product"] if value.factor else []),
        f"  result at {value.place}",
        "",
    ]
    return "\n".join(lines) + kernel_text(value.scores) + kernel_text(value.epilogue)


@to_text.register
def _(value: Reduction) -> str:
    head = f"reduction {value.group} of {value.num_rows} rows of {value.length}"
    foldings = "".join(folding_text(folding) for folding in value.foldings)
    return f"{head}{' cut' if value.cut else ''}\n{foldings}"


@to_text.register
def _(value: Scan) -> str:
    ways = (("reverse", value.reverse), ("exclusive", value.exclusive), ("cut", value.cut))
    told = "".join(f" {name}" for name, holds in ways if holds)
    head = f"scan {value.group} of {value.num_rows} rows of {value.length}{told}\n"
    return head + "".join(folding_text(folding) for folding in value.foldings)


@to_text.register
def _(value: RowBlocks) -> str:
    b = f"inputs[{value.b}]{' turned' if value.turned else ''}"
    product = f"inputs[{value.a}] by {b}"
    if value.added is not None:
        product = f"{value.alpha} * {product} + {value.beta} * inputs[{value.added}]"
    head = f"row blocks {value.group} of {value.rows} rows\n  {value.product} = {product}\n"
    return head + to_text(value.tail)


def _roles(axes: Matrix, rows: str) -> tuple[tuple[str, tuple[Axis, ...]], ...]:
    return ("batch", axes.batch), (rows, axes.rows), ("k", axes.inner)


def _axes_text(axes: tuple[Axis, ...]) -> str:
    """Each size with the axis that it goes along: `[s0:0, 64:1]`; a broadcast one has none."""
    texts = (f"{axis.size}" + ("" if axis.place is None else f":{axis.place}") for axis in axes)
    return f"[{', '.join(texts)}]"


@to_text.register
def _(value: Source) -> str:
    return value.text


@to_text.register
def contract_text(value: Contract) -> str:
    lines = [f"contract forward({value.signature})"]
    lines += [_input_line(fact) for fact in value.inputs]
    lines += [f"  weight {fact.path} {fact.type}{_layout(fact)}" for fact in value.weights]
    lines += [f"  buffer {fact.access} {fact.type}, assigned" for fact in value.assigned]
    lines += [_module_line(fact) for fact in value.modules]
    lines += [_symbol_line(fact) for fact in value.symbols]
    lines += ["  all tensors row-major"] if value.row_major else []
    lines += [] if value.differentiable else ["  no gradients"]
    return "\n".join([*lines, ""])


def _layout(fact: WeightFact) -> str:
    return "" if fact.layout == "strided" else f", {fact.layout}"


@to_text.register
def capture_text(value: Capture) -> str:
    return "".join([f"capture {value.name}\n", *map(variant_text, value.variants)])


@to_text.register
def variant_text(value: Variant) -> str:
    mode = ", training" if value.training else ""
    also = f" and {', '.join(value.also)}" if value.also else ""
    head = f"variant {value.name}, autocast {value.autocast or 'off'}{also}{mode}\n"
    return head + contract_text(value.contract) + graph_text(value.graph)


def node_names(graph: Graph) -> dict[int, str]:
    """What the text calls each node, by serial: constants by value, all others %0, %1, ..."""
    names: dict[int, str] = {}
    number = 0
    for node in graph.nodes():
        if node.op is Op.CONST:
            names[node.serial] = str(node.attrs)
            continue
        names[node.serial] = f"%{number}"
        number += 1
    return names


def node_text(node: Node, names: Names) -> str:
    """Operation, operands and attributes of a node: `add %1 0.5`."""
    if isinstance(node.attrs, CallAttrs):
        return _call_text(node, node.attrs, names)
    operands = [_operand_text(operand, node, names) for operand in node.inputs]
    return " ".join(part for part in (node.op.value, *operands, str(node.attrs)) if part)


def _node_line(node: Node, names: Names, place: str | None, is_kernel: bool = False) -> str:
    comments = [place] if place else []
    if isinstance(node.attrs, CallAttrs) and not is_kernel:
        comments.append(node.attrs.reason)
    comment = f"  # {'; '.join(comments)}" if comments else ""
    return f"{names[node.serial]} {_type_text(node)} = {node_text(node, names)}{comment}"


def _type_text(node: Node) -> str:
    if not isinstance(node.attrs, CallAttrs) or len(node.attrs.results) == 1:
        return str(node.type)
    return f"({', '.join(str(result) for result in node.attrs.results)})"


def _operand_text(operand: Node, reader: Node | None, names: Names) -> str:
    text = names[operand.serial]
    if operand.op is not Op.CONST or (reader and _dtype_is_told(operand, reader)):
        return text
    return f"{text}:{operand.type.dtype.value}"


def _dtype_is_told(const: Node, reader: Node) -> bool:
    """Whether another operand of the reader says which dtype the constant has."""
    return reader.kind is Kind.POINTWISE and any(
        other.op is not Op.CONST and other.type.dtype is const.type.dtype for other in reader.inputs
    )


def _call_text(node: Node, attrs: CallAttrs, names: Names) -> str:
    operands = [_operand_text(operand, None, names) for operand in node.inputs]
    arguments = [_argument_text(a, operands) for a in attrs.arguments]
    arguments += [f"{name}={_argument_text(a, operands)}" for name, a in attrs.keywords]
    layout = " channels last" if attrs.channels_last else ""
    return f"call {attrs.target}({', '.join(arguments)}){layout}"


def _argument_text(argument: Any, operands: list[str]) -> str:
    if isinstance(argument, Operand):
        return operands[argument.index]
    if isinstance(argument, tuple):
        return f"[{', '.join(_argument_text(a, operands) for a in argument)}]"
    return repr(argument) if isinstance(argument, str) else str(argument)


def _endings(graph: Graph, names: Names) -> list[str]:
    """What a call leaves in buffers, and what it returns."""
    tracked = [_tracking_text(each, graph, names) for each in graph.tracked]
    updated = [
        f"{'assign' if each.assigned else 'update'} {each.buffer} ="
        f" {_operand_text(graph.outputs[each.value], None, names)}"
        for each in graph.updates
    ]
    return [*tracked, *updated, f"return {_structure_text(graph.structure, graph, names)}"]


def _tracking_text(tracking: Tracking, graph: Graph, names: Names) -> str:
    towards = [_operand_text(graph.outputs[place], None, names) for place in tracking.towards]
    momentum = "" if tracking.momentum is None else f" momentum {tracking.momentum}"
    count = "" if tracking.count is None else f" count {tracking.count}"
    buffers = f"{tracking.mean} {tracking.variance}"
    return f"track {buffers} towards {' '.join(towards)}{momentum}{count}"


def _structure_text(structure: Structure, graph: Graph, names: Names) -> str:
    if isinstance(structure, Leaf):
        return _operand_text(graph.outputs[structure.index], None, names)
    if isinstance(structure, Record):
        fields = [f"{key}={_structure_text(part, graph, names)}" for key, part in structure.fields]
        return f"{structure.qualname}({', '.join(fields)})"
    kind, content = structure
    if kind == "const":
        return repr(content)
    if kind == "dict":
        items = [f"{key!r}: {_structure_text(item, graph, names)}" for key, item in content]
        return f"{{{', '.join(items)}}}"
    items = [_structure_text(item, graph, names) for item in content]
    if kind == "list":
        return f"[{', '.join(items)}]"
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _group_lines(group: Group, names: Names, places: Names) -> list[str]:
    schedule = f"  {group.schedule}" if group.schedule else ""
    reads, writes = (
        " ".join(_operand_text(node, None, names) for node in nodes) or "nothing"
        for nodes in (group.inputs, group.outputs)
    )
    reuse = (
        ""
        if group.reuse is None
        else f", takes the buffer of {names[group.inputs[group.reuse].serial]}"
    )
    held = " ".join(_operand_text(group.inputs[index], None, names) for index in group.held)
    estimate = group.estimate
    return [
        f"{group.name}  {group.kind.value}{schedule}",
        *(
            f"  {_node_line(node, names, places.get(node.serial), node is group.anchor)}"
            for node in group.nodes
            if node.op is not Op.CONST
        ),
        f"  reads {reads}, writes {writes}{reuse}{f', holds {held}' if held else ''}",
        f"  {estimate.bytes} bytes, {estimate.flops} flops, limit {estimate.limit}",
        *([_traffic_line(group.traffic)] if group.traffic else []),
        f"  reason: {group.reason}",
    ]


def _across_lines(calls: Chain) -> list[str]:
    """The modules whose boundaries a kernel crosses: their forwards are not kept apart."""
    paths = dict.fromkeys(call.path for call in calls)
    return [f"  crosses the boundary of {', '.join(paths)}"] if paths else []


def _traffic_line(traffic: Traffic) -> str:
    must, moved = traffic.must_bytes, traffic.moved_bytes
    times = f", {moved / must:.2f} times as many" if must and moved != must else ""
    return f"  must move {must} bytes, moves {moved}{times}"


def _input_line(fact: InputFact) -> str:
    return f"  input {fact.access} {fact.type if fact.type is not None else f'== {fact.literal!r}'}"


def _module_line(fact: ModuleFact) -> str:
    mode = "" if fact.mode is None else f" training={fact.mode}"
    attributes = "".join(f" {name}={value!r}" for name, value in fact.attributes)
    kind = f"{fact.type_name}{' parametrized' if fact.parametrized else ''}"
    return f"  module {fact.path or '(itself)'} {kind}{mode}{attributes}"


def _symbol_line(fact: SymbolFact) -> str:
    access, axis = fact.access
    upper = "any" if fact.upper is None else fact.upper
    extent = f"from {fact.lower} to {upper}, seen {fact.example}"
    return f"  size {fact.name} = {access}.shape[{axis}] {extent}"


def _shape_text(shape: tuple[Size, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
