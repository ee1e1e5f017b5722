"""The backward of a fused group as a function of its own, where each of its operations has a
gradient in closed form: from what the kernels have left, where a reference is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter

from ..ir.graph import Graph, Node
from ..ir.operator import Operator, only_tracked
from ..ir.ops import Kind, Op
from ..ir.plan import Group
from .body import Body, inside, names_size, parameters, python_name, size_reads
from .spelling.composites import calls
from .spelling.gradients import OPERANDS, Gradient, Values, gradient_of, is_heavy
from .spelling.ops import sizes

# Elementwise operations are as many calls here as in a reference, which is less to read.
MAX_LIGHT = 3


@dataclass(frozen=True, slots=True)
class Backward:
    """`text` is `def _<name>_backward(_need, gradients..., arguments..., kept...)`: the gradients
    of the arguments, of which `_need` tells the wanted ones; `num` of these are tensors. They are
    made from those of the results at `differentiated`, and from the values at `kept` of the results
    and of what is `left`, which are the intermediates that it reads. Those at `silent` never have
    gradients, where the others always do. It is made `by_kernels` of its own maybe; where these
    read intermediates that only the function of the text `saving` leaves, that runs forward.
    """

    text: str
    num: int
    differentiated: tuple[int, ...]
    kept: tuple[int, ...]
    silent: tuple[int, ...] | None
    left: tuple[Node, ...]
    by_kernels: bool = False
    saving: str = ""
    num_saved: int = 0

    @property
    def call(self) -> str:
        """What makes gradients of it."""
        name = self.text.removeprefix("def ").partition("(")[0]
        places = [*map(str, (self.num, self.differentiated, self.kept, self.silent))]
        if not self.by_kernels:
            return f"closed=_closed({', '.join([name, *places])})"
        num_results = len(self.left) - self.num_saved
        saving = [self.saving, str(num_results)] if self.saving else []
        return f"closed=_by_kernels({', '.join(['ModelNew._opweld', name, *places, *saving])})"


def backward(
    graph: Graph, group: Group, operator: Operator, intermediates: tuple[Node, ...] = ()
) -> Backward | None:
    """The backward of a group, None where the reference is to be differentiated. `intermediates`
    are there behind the group's results.
    """
    silent = only_tracked(graph, group)
    results = tuple(n for n in group.outputs if n.serial not in silent and n.type.dtype.is_float)
    there = {node.serial: node for node in (*group.inputs, *group.outputs, *intermediates)}
    values = Values(calls(inside(group)), there)
    names = [python_name(argument.name) for argument in operator.arguments]
    body = Body(graph, f"{names[0]}.device", calls=dict(values.calls), tells=False)
    sweep = _Sweep(body, values, group.inputs)
    order = sweep.order(results)
    rows = _rows(order, values)
    if rows is None or any(argument.listed is not None for argument in operator.arguments):
        return None
    sweep.name(names, (*group.outputs, *intermediates))
    gradients = [*sweep.run(order, results, rows), *("None" for _ in operator.sizes)]
    read = tuple(node for node in intermediates if sweep.reads(node))
    left = (*group.outputs, *read)
    kept = tuple(place for place, node in enumerate(left) if sweep.reads(node))
    differentiated = tuple(p for p, node in enumerate(group.outputs) if node in results)
    return Backward(
        _text(operator, sweep, [sweep.names[left[place].serial] for place in kept], gradients),
        len(operator.arguments),
        differentiated,
        kept,
        silent_places(operator, differentiated),
        read,
    )


def _rows(order: tuple[Node, ...], values: Values) -> dict[int, Gradient] | None:
    """The gradients of all nodes, None where there is no row for one, or no gain by them."""
    found = {node.serial: gradient_of(node, values) for node in order}
    rows = {serial: row for serial, row in found.items() if row is not None}
    short = len(order) <= MAX_LIGHT or any(is_heavy(node, values) for node in order)
    return rows if order and short and len(rows) == len(found) else None


def _text(operator: Operator, sweep: _Sweep, kept: list[str], gradients: list[str]) -> str:
    lines = sweep.body.lines
    reads = [line for line in size_reads(operator) if names_size(line, lines)]
    given = ", ".join(["_need", *sweep.given, *parameters(operator), *kept])
    returned = f"return {', '.join(gradients)}{',' if len(gradients) == 1 else ''}"
    head = f"def _{operator.name}_backward({given}):"
    return "\n".join([head, *(f"    {line}" for line in (*reads, *lines, returned))])


def silent_places(operator: Operator, differentiated: tuple[int, ...]) -> tuple[int, ...] | None:
    """The results without gradients, where each argument is behind all the others."""
    floats = tuple(i for i, a in enumerate(operator.arguments) if a.type.dtype.is_float)
    if any(operator.reached[place] != floats for place in differentiated):
        return None
    return tuple(p for p, _ in enumerate(operator.reached) if p not in differentiated)


@dataclass(slots=True)
class _Sweep:
    """The statements of a backward, from the results to the arguments.

    `names` are those of values that the kernels have left, `given` those of the gradients that come
    in. `parts` has the texts that the gradient of each value is the sum of, `reached` the arguments
    behind it.
    """

    body: Body
    values: Values
    inputs: tuple[Node, ...]
    names: dict[int, str] = field(default_factory=dict)
    given: list[str] = field(default_factory=list)
    parts: dict[int, list[str]] = field(default_factory=dict)
    reached: dict[int, frozenset[int]] = field(default_factory=dict)
    everything: frozenset[int] = frozenset()

    def order(self, results: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes that gradients go through, operands first."""
        given = {node.serial for node in self.inputs}
        for place, node in enumerate(self.inputs):
            self.reached[node.serial] = frozenset([place] if node.type.dtype.is_float else [])
        found: dict[int, Node] = {}
        waiting = [node for node in results if node.serial not in given]
        while waiting:
            node = waiting.pop()
            if node.serial not in found and node.type.dtype.is_float:
                found[node.serial] = node
                waiting.extend(n for n in self._operands(node) if n.serial not in given)
        for serial in sorted(found):
            operands = self._operands(found[serial])
            sets = [self.reached.get(operand.serial, frozenset()) for operand in operands]
            self.reached[serial] = frozenset().union(*sets)
        behind = [self.reached.get(node.serial, frozenset()) for node in results]
        self.everything = frozenset().union(*behind)
        return tuple(found[s] for s in sorted(found) if self.reached[s])

    def name(self, names: list[str], left: tuple[Node, ...]) -> None:
        """Names what the kernels were given, and what they have left."""
        self.body.taken.update(("_need", "_", *names))
        self.body.texts.update(zip((node.serial for node in self.inputs), names, strict=True))
        for node in left:
            if node.serial not in self.body.texts:
                name = self.body.fresh(f"{self._called(node)}_out")
                self.names[node.serial] = self.body.texts[node.serial] = name

    def reads(self, node: Node) -> bool:
        """Whether the backward reads a value that the kernels have left."""
        return node.serial in self.names and node.serial in self.body.asked

    def run(
        self, order: tuple[Node, ...], results: tuple[Node, ...], rows: Mapping[int, Gradient]
    ) -> list[str]:
        """The texts of the arguments' gradients."""
        for node in results:
            name = self.body.fresh("grad")
            self.given.append(name)
            self.parts.setdefault(node.serial, []).append(name)
        again = {serial: row.again for serial, row in rows.items() if row.again}
        self.body.calls.update(again)
        begun = {node.serial: self._begin(node, rows[node.serial]) for node in order}
        for node in reversed(order):
            self._pass_on(node, rows[node.serial], begun[node.serial])
        return [self._total(node) or "None" for node in self.inputs]

    def _operands(self, node: Node) -> tuple[Node, ...]:
        call = self.values.calls.get(node.serial)
        return call.operands if call else node.inputs

    def _begin(self, node: Node, row: Gradient) -> str:
        """The statement that a gradient rests on; gives the beginning of its names."""
        if not row.first:
            return ""
        start = self.body.fresh(self._called(node))
        texts = {**self._texts(row.first, node, row), "s": start}
        if "{y}" in row.first:
            known = node.serial in self.body.texts
            texts["y"] = "_" if known else self.body.texts.setdefault(node.serial, f"{start}_out")
        self.body.lines.append(row.first.format(**texts))
        return start

    def _texts(self, template: str, node: Node, row: Gradient) -> dict[str, str]:
        """The values that a template names, but for gradients; they are computed if need be."""
        operands = dict(zip(OPERANDS, self._operands(node), strict=False))
        nodes = {"y": node, **operands, **row.values}
        fields = {name for _, name, _, _ in Formatter().parse(template) if name}
        fields -= {"y"} if row.first and "{y}" in row.first else set()
        return {name: self.body.text(nodes[name]) for name in sorted(fields) if name in nodes}

    def _pass_on(self, node: Node, row: Gradient, start: str) -> None:
        total = self._total(node)
        operands = self._operands(node)
        if row.joint:
            text = self._filled(row.texts[0] or "", node, row, total, start)
            wanted = ", ".join(self._wanted(each) or "False" for each in operands)
            names = [self._fresh(each) for each in operands]
            self.body.lines.append(
                f"{', '.join(names)} = {text.replace('<needed>', f'({wanted})')}"
            )
            for operand, name in zip(operands, names, strict=True):
                self.parts.setdefault(operand.serial, []).append(name)
            return
        for operand, template in zip(operands, row.texts, strict=True):
            if template is None or not self.reached.get(operand.serial):
                continue
            text = self._filled(template, node, row, total, start)
            if node.serial not in self.body.calls:
                text = _summed(text, node, operand)
            part = text if text == total else self._define(text, operand)
            self.parts.setdefault(operand.serial, []).append(part)

    def _filled(self, template: str, node: Node, row: Gradient, total: str, start: str) -> str:
        texts = {"g": total, "s": start, "needed": "<needed>"}
        if "{y}" in template:
            texts["y"] = self.body.text(node)
        return template.format(**{**texts, **self._texts(template, node, row)})

    def _define(self, text: str, node: Node) -> str:
        """A statement of the gradient of a value, where one of the arguments behind it is wanted:
        one is of all of them.
        """
        name = self._fresh(node)
        some = self.reached[node.serial] != self.everything
        condition = f" if {self._wanted(node)} else None" if some else ""
        self.body.lines.append(f"{name} = {text}{condition}")
        return name

    def _fresh(self, node: Node) -> str:
        """A name for the gradient of a value."""
        argument = node.serial in self.body.texts and node.serial not in self.values.calls
        name = self.body.texts[node.serial] if argument else f"{self._called(node)}_out"
        return self.body.fresh(f"{name}_grad")

    def _wanted(self, node: Node) -> str:
        places = sorted(self.reached.get(node.serial, ()))
        return " or ".join(f"_need[{place}]" for place in places)

    def _called(self, node: Node) -> str:
        call = self.values.calls.get(node.serial)
        if node.op is Op.CALL:
            return str(node.attrs.target).split(".")[1].strip("_")
        return call.name if call else node.op.value

    def _total(self, node: Node) -> str:
        """The name of the gradient of a value, once all its parts are known."""
        parts = self.parts.get(node.serial, [])
        if len(parts) < 2:
            return parts[0] if parts else ""
        self.parts[node.serial] = [self._define(" + ".join(parts), node)]
        return self.parts[node.serial][0]


def _summed(text: str, node: Node, operand: Node) -> str:
    """The gradient of an operand that is the same along some axes."""
    if node.kind is not Kind.POINTWISE or operand.type.shape == node.type.shape:
        return text
    text = text if text.isidentifier() else f"({text})"
    return f"{text}.sum_to_size(({sizes(operand.type.shape)}))"
