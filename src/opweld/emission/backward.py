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
    of the arguments, of which `_need` tells the wanted ones. They are made from those of the
    results at `differentiated`, and from the values at `kept` of the results and of what is `left`,
    which are the intermediates that it reads.
    """

    text: str
    differentiated: tuple[int, ...]
    kept: tuple[int, ...]
    left: tuple[Node, ...]

    @property
    def call(self) -> str:
        """What makes gradients of it."""
        name = self.text.removeprefix("def ").partition("(")[0]
        return f"closed=_closed({name}, {self.differentiated}, {self.kept})"


def backward(
    graph: Graph, group: Group, operator: Operator, intermediates: tuple[Node, ...] = ()
) -> Backward | None:
    """The backward of a group, None where the reference is to be differentiated. `intermediates`
    are there behind the group's results.
    """
    if any(argument.listed is not None for argument in operator.arguments):
        return None
    silent = only_tracked(graph, group)
    left = (*group.outputs, *intermediates)
    given = {node.serial for node in group.inputs}
    there = {node.serial: node for node in (*group.inputs, *left)}
    values = Values(calls(inside(group)), there)
    results = tuple(n for n in group.outputs if n.serial not in silent and n.type.dtype.is_float)
    sweep = _Sweep(Body(graph, "", calls=dict(values.calls)), values, group.inputs)
    order = sweep.order(results, given)
    found = {node.serial: gradient_of(node, values) for node in order}
    if not results or not order or not all(found.values()):
        return None
    if len(order) > MAX_LIGHT and not any(is_heavy(node, values) for node in order):
        return None
    names = [python_name(argument.name) for argument in operator.arguments]
    sweep.name(group.inputs, names, left)
    gradients = sweep.run(order, results, {s: g for s, g in found.items() if g})
    read = tuple(node for node in intermediates if sweep.reads(node))
    left = (*group.outputs, *read)
    kept = tuple(place for place, node in enumerate(left) if sweep.reads(node))
    reads = [line for line in size_reads(operator) if names_size(line, sweep.body.lines)]
    told = [
        "_need",
        *sweep.given,
        *parameters(operator),
        *(sweep.names[left[k].serial] for k in kept),
    ]
    text = "\n".join(
        [
            f"def _{operator.name}_backward({', '.join(told)}):",
            *(f"    {line}" for line in (*reads, *sweep.body.lines)),
            f"    return {', '.join([*gradients, *(['None'] * len(operator.sizes))])},",
        ]
    )
    differentiated = tuple(p for p, node in enumerate(group.outputs) if node in results)
    return Backward(text, differentiated, kept, read)


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

    def order(self, results: tuple[Node, ...], given: set[int]) -> tuple[Node, ...]:
        """The nodes that gradients go through, operands first."""
        for place, node in enumerate(self.inputs):
            self.reached[node.serial] = frozenset([place] if node.type.dtype.is_float else [])
        found: dict[int, Node] = {}
        waiting = [node for node in results if node.serial not in given]
        while waiting:
            node = waiting.pop()
            if node.serial not in found and node.type.dtype.is_float:
                found[node.serial] = node
                waiting.extend(n for n in self.body.operands(node) if n.serial not in given)
        for serial in sorted(found):
            operands = self.body.operands(found[serial])
            sets = [self.reached.get(operand.serial, frozenset()) for operand in operands]
            self.reached[serial] = frozenset().union(*sets)
        self.everything = frozenset().union(*(self.reached[node.serial] for node in results))
        return tuple(found[s] for s in sorted(found) if self.reached[s])

    def name(self, inputs: tuple[Node, ...], names: list[str], left: tuple[Node, ...]) -> None:
        self.body.device = f"{names[0]}.device"
        self.body.tells = False
        self.body.taken.update(("_need", "_", *names))
        self.body.texts.update(zip((node.serial for node in inputs), names, strict=True))
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
        begun = {node.serial: self._begin(node, rows[node.serial]) for node in order}
        for node in reversed(order):
            self._pass_on(node, rows[node.serial], begun[node.serial])
        return [self._total(node) or "None" for node in self.inputs]

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
        operands = dict(zip(OPERANDS, self.body.operands(node), strict=False))
        nodes = {"y": node, **operands, **row.values}
        fields = {name for _, name, _, _ in Formatter().parse(template) if name}
        fields -= {"y"} if row.first and "{y}" in row.first else set()
        return {name: self.body.text(nodes[name]) for name in sorted(fields) if name in nodes}

    def _pass_on(self, node: Node, row: Gradient, start: str) -> None:
        total = self._total(node)
        operands = self.body.operands(node)
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
