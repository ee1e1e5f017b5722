"""Statements in PyTorch, and the functions that are made of them alone: references of kernels."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..ir.expr import symbol
from ..ir.graph import Graph, Node, Operands, Origin, own_inputs, reached, topological
from ..ir.operator import Operator, only_tracked
from ..ir.ops import Op
from ..ir.plan import Group
from ..ir.views import behind_views, is_copy, is_free_view
from .spans import Span
from .spelling.composites import Call, calls, in_parts
from .spelling.gathers import gather_text
from .spelling.ops import (
    dtype,
    is_infix,
    needs_tensors,
    number,
    repeats_operands,
    size_name,
    sizes,
    spelled,
)

# A longer expression is not written inside another.
MAX_INLINE_CHARS = 48
MAX_LINE_CHARS = 92
NOTHING_MORE: Mapping[str, tuple[Node, ...]] = {}
RESERVED = frozenset((*keyword.kwlist, "self", "torch", "float"))


@dataclass(slots=True)
class Body:
    """Lines of a function body, and the text by which each node made so far is known.

    `calls` has nodes that are made by one call, from another operand than their own, `lists` the
    CATs that stand for lists of tensors, `wishes` names for some nodes. `asked` has the nodes whose
    texts something was made of; the names of `passing` ones may go to what the next statement
    makes, which alone still reads them. It `tells` the user's lines, and names what they name,
    unless they are not of this function.
    """

    graph: Graph
    device: str
    texts: dict[int, str] = field(default_factory=dict)
    calls: dict[int, Call] = field(default_factory=dict)
    lists: Collection[Node] = ()
    wishes: dict[int, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=lambda: set(RESERVED))
    lines: list[str] = field(default_factory=list)
    assigned: set[str] = field(default_factory=set)
    asked: dict[int, Node] = field(default_factory=dict)
    passing: tuple[Node, ...] = ()
    tells: bool = True
    place: tuple[str, str] | None = None
    origins: dict[int, Origin] = field(init=False)

    def __post_init__(self) -> None:
        self.origins = dict(self.graph.origins)

    def text(self, node: Node) -> str:
        """The text of a value; what it needs and does not exist yet is computed first."""
        if node.serial not in self.texts and node in self.lists:
            self.asked[node.serial] = node
            return f"[{', '.join(map(self._shown, node.inputs))}]"
        if node.serial not in self.texts:
            for needed in reached((node,), self.texts, self.operands):
                self._make(needed)
        self.asked[node.serial] = node
        return self.texts[node.serial]

    def _shown(self, node: Node) -> str:
        """A tensor of a list, in one expression with the views of it."""
        if node.serial in self.texts:
            return self.texts[node.serial]
        assert is_free_view(node), f"{node!r} is in memory where a list has it"
        return spelled(node, self._shown)

    def tensor(self, node: Node) -> str:
        """The same, but a constant as a tensor of its own."""
        if node.op is not Op.CONST:
            return self.text(node)
        return self._full(node, "()")

    def _full(self, node: Node, shape: str) -> str:
        kind = dtype(node.type.dtype)
        return (
            f"torch.full({shape}, {number(node.attrs.value)}, dtype={kind}, device={self.device})"
        )

    def _make(self, node: Node) -> None:
        if node.op is Op.CONST:
            self.texts[node.serial] = _constant(node)
        else:
            self.assign(node)

    def operands(self, node: Node) -> tuple[Node, ...]:
        """What the text of `node` is made of."""
        call = self.calls.get(node.serial)
        return call.operands if call else node.inputs

    def expression(self, node: Node) -> str:
        call = self.calls.get(node.serial)
        if call:
            return call.spelled(map(self.text, call.operands))
        if node.op is Op.IOTA:
            return self._iota(node)
        if node.op is Op.GATHER:
            return gather_text(node, self._operand_of(node))
        if node.op is Op.EXPAND and node.inputs[0].op is Op.CONST:
            return self._full(node.inputs[0], f"({sizes(node.attrs.shape)})")
        return spelled(node, self._operand_of(node))

    def _operand_of(self, user: Node) -> Any:
        infix = is_infix(user)

        def operand(node: Node) -> str:
            if node.op is Op.CONST and needs_tensors(user):
                return self.tensor(node)
            text = self.text(node)
            return f"({text})" if infix and text.startswith("-") else text

        return operand

    def _iota(self, node: Node) -> str:
        a = node.attrs
        kind = dtype(node.type.dtype)
        text = f"torch.arange({number(a.length)}, dtype={kind}, device={self.device})"
        if a.step != 1:
            text += f" * {number(a.step)}"
        return text if a.start == 0 else f"{text} + {number(a.start)}"

    def assign(self, node: Node) -> str:
        """A statement that gives `node` a name."""
        expression = self.expression(node)
        self.comment(node)
        return self.define((node,), expression)

    def inline(self, node: Node) -> None:
        """`node` is written inside the one expression that uses it, if it is short."""
        expression = self.expression(node)
        if len(expression) > MAX_INLINE_CHARS:
            self.comment(node)
            self.define((node,), expression)
        else:
            infix = is_infix(node) and node.serial not in self.calls
            self.texts[node.serial] = f"({expression})" if infix else expression

    def define(self, nodes: tuple[Node, ...], expression: str) -> str:
        """`names = expression`"""
        names = [self._name(node) for node in nodes]
        self.passing = ()
        self.texts.update(zip((n.serial for n in nodes), names, strict=True))
        self.assigned.update(names)
        self.lines.append(f"{', '.join(names)} = {expression}")
        return names[0]

    def made(self, nodes: tuple[Node, ...], expression: str) -> None:
        """`names = expression` of results that a kernel makes, views of them behind these."""
        views = (node for node in nodes if is_free_view(node) and node.serial not in self.wishes)
        self.wishes.update((node.serial, self._wish(behind_views(node))) for node in views)
        self.define(nodes, expression)

    def comment(self, node: Node) -> None:
        """The user's own line, where it is not the one just shown."""
        origin = self.origins.get(node.serial)
        if origin:
            self.show((origin.place, origin.line))

    def show(self, line: tuple[str, str]) -> None:
        """A line of the user's as a comment, where it is not the one just shown."""
        if self.tells and line != self.place:
            self.place = line
            text = f"# {line[0]}: {' '.join(line[1].split())}"
            self.lines.append(
                text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]}..."
            )

    def _name(self, node: Node) -> str:
        wish = self.wishes.get(node.serial) or self._wish(node)
        return self._passed_on(wish) or self.fresh(wish)

    def _wish(self, node: Node) -> str:
        """The name that the user's line assigns to, or the operation's."""
        call = self.calls.get(node.serial)
        own_name = call.name if call else _own_name(node)
        origin = self.origins.get(node.serial)
        assigned = assigned_name(origin.line) if origin and self.tells else None
        return assigned or f"{own_name}_out"

    def _passed_on(self, wish: str) -> str | None:
        """The name of a value that is read no more, where it is the one wished for."""
        for old in self.passing:
            name = self.texts.get(old.serial, "")
            if name.isidentifier() and re.sub(r"_\d+$", "", name) == wish:
                del self.texts[old.serial]
                return name
        return None

    def fresh(self, wish: str) -> str:
        name = wish if wish not in self.taken else ""
        number_from = 2
        while not name:
            candidate = f"{wish}_{number_from}"
            name = candidate if candidate not in self.taken else ""
            number_from += 1
        self.taken.add(name)
        return name


def _constant(node: Node) -> str:
    text = number(node.attrs.value)
    return f"({text})" if " " in text else text


def _own_name(node: Node) -> str:
    if node.op is Op.CALL:
        return str(node.attrs.target.split(".")[1].strip("_"))
    return "copy" if is_copy(node) else node.op.value


def assigned_name(line: str) -> str | None:
    """The name that the user's line assigns to, if it is one that can be taken."""
    assigned = re.match(r"\s*(?:self\.)?([A-Za-z_]\w*)\s*(?::[^=]*)?=[^=]", line)
    return assigned[1] if assigned and assigned[1] not in RESERVED else None


def python_name(name: str) -> str:
    """A kernel's operand as a Python parameter."""
    return f"{name}_" if name in RESERVED else name


def parameters(operator: Operator) -> list[str]:
    """The parameters of an operator's reference: its tensors, then its sizes."""
    tensors = [python_name(argument.name) for argument in operator.arguments]
    return tensors + [size_name(name) for name in operator.sizes]


def size_reads(operator: Operator) -> list[str]:
    """`s0 = x.shape[0]` for each symbolic size that an operator's arguments show."""
    arguments = [each.tensor(python_name(each.name)) for each in operator.arguments]
    return [
        f"{size_name(r.name)} = {arguments[r.argument]}.shape[{r.axis}]" for r in operator.reads
    ]


def _joining(operator: Operator) -> list[str]:
    """The statements that make tensors of lists."""
    lists = [(python_name(a.name), a.listed) for a in operator.arguments if a.listed is not None]
    return [f"{name} = torch.cat({name}, dim={axis})" for name, axis in lists]


def reference(graph: Graph, group: Group, operator: Operator) -> str:
    """`def _<name>_reference(...)`: what the kernel computes, in PyTorch.

    It is there for gradients: what only running statistics go towards is left out.
    """
    silent = only_tracked(graph, group)
    kept = tuple(node for node in group.outputs if node.serial not in silent)
    outputs, group = group.outputs, replace(group, outputs=kept)
    names = [python_name(argument.name) for argument in operator.arguments]
    body = Body(graph, f"{names[0]}.device")
    body.taken.update(names)
    body.texts.update(zip((node.serial for node in group.inputs), names, strict=True))
    body.calls.update(calls(inside(group)))
    body.calls.update(in_parts(inside(group), body.fresh))
    spelled = inside(group, body.operands)
    once = _used_once(group, spelled, body.operands)
    for node in spelled:
        if node.op is Op.CONST:
            body.text(node)
        elif _in_one_line(body, node, once.get(node.serial)):
            body.inline(node)
        else:
            body.assign(node)
    results = ", ".join(
        "None" if node.serial in silent else body.texts[node.serial] for node in outputs
    )
    reads = [line for line in size_reads(operator) if names_size(line, body.lines)]
    lines = [*reads, *_joining(operator), *ending(body.lines, results)]
    head = f"def _{operator.name}_reference({', '.join(parameters(operator))}):"
    return "\n".join([head, *(f"    {line}" for line in lines)])


def apart(graph: Graph, group: Group, operator: Operator, tail: Operator) -> str:
    """`def _<name>_apart(_tail, ...)`: the library's product, and the kernel after it."""
    assert group.anchor is not None and group.tail is not None, "row blocks have a product"
    names = [python_name(argument.name) for argument in operator.arguments]
    body = Body(graph, f"{names[0]}.device")
    body.taken.update(names)
    body.texts.update(zip((node.serial for node in group.inputs), names, strict=True))
    body.assign(group.anchor)
    given = [body.texts[node.serial] for node in group.tail.inputs]
    given += [size_name(name) for name in tail.sizes]
    body.lines.append(f"return _tail({', '.join(given)})")
    reads = [line for line in size_reads(operator) if names_size(line, body.lines)]
    head = f"def _{operator.name}_apart(_tail, {', '.join(parameters(operator))}):"
    return "\n".join([head, *(f"    {line}" for line in (*reads, *body.lines))])


def together(
    graph: Graph,
    span: Span,
    operators: Mapping[str, Operator],
    left: tuple[Node, ...] = (),
    more: Mapping[str, tuple[Node, ...]] = NOTHING_MORE,
) -> str:
    """`def _<name>_together(_kernels, ...)`: the kernels of a span, one after the other. What is
    `left` for their backward stands behind the results. Of kernels that leave `more` results than
    they do otherwise, by the names of the groups, it is `_<name>_saving_together`.
    """
    names = [python_name(argument.name) for argument in span.operator.arguments]
    body = Body(graph, f"{names[0]}.device")
    body.taken.update(names)
    body.texts.update(zip((node.serial for node in span.whole.inputs), names, strict=True))
    over = {node.serial: node for node in topological(span.whole.as_compiled.outputs)}
    for place, group in enumerate(span.parts):
        given = [body.text(over.get(node.serial, node)) for node in group.inputs]
        given += sizes_given(group, operators[group.name])
        outputs = (*group.outputs, *more.get(group.name, ()))
        body.made(outputs, f"_kernels[{place}]({', '.join(given)})")
    results = ", ".join(body.texts[node.serial] for node in (*span.whole.outputs, *left))
    reads = [line for line in size_reads(span.operator) if names_size(line, body.lines)]
    lines = [*reads, *ending(body.lines, results)]
    name = f"_{span.operator.name}{'_saving' if more else ''}_together"
    head = f"def {name}(_kernels, {', '.join(parameters(span.operator))}):"
    return "\n".join([head, *(f"    {line}" for line in lines)])


def names_size(line: str, lines: list[str]) -> bool:
    name = line.split(" ", 1)[0]
    return any(re.search(rf"\b{name}\b", each) for each in lines)


def ending(lines: list[str], result: str) -> list[str]:
    """The statements with `return`, which takes the place of a last line that names the result."""
    start = f"{result} = "
    if lines and lines[-1].startswith(start):
        return [*lines[:-1], f"return {lines[-1].removeprefix(start)}"]
    return [*lines, f"return {result}"]


def inside(group: Group, operands: Operands = own_inputs) -> tuple[Node, ...]:
    """What is computed between the group's operands and its results, operands first."""
    return reached(group.outputs, {node.serial for node in group.inputs}, operands)


def _used_once(group: Group, nodes: tuple[Node, ...], operands: Operands) -> dict[int, Node]:
    """The only user of each node that has one use among `nodes` and none outside the group."""
    users: dict[int, list[Node]] = {}
    for node in nodes:
        for operand in operands(node):
            users.setdefault(operand.serial, []).append(node)
    results = {node.serial for node in group.outputs}
    return {s: u[0] for s, u in users.items() if len(u) == 1 and s not in results}


def _in_one_line(body: Body, node: Node, user: Node | None) -> bool:
    """Whether the user wrote `node` inside the expression of the one operation that reads it."""
    if user is None:
        return False
    if user.serial not in body.calls and repeats_operands(user):
        return False
    origin, of_user = body.origins.get(node.serial), body.origins.get(user.serial)
    return origin is not None and of_user is not None and origin[:2] == of_user[:2]


def sizes_given(group: Group, operator: Operator) -> list[str]:
    """The sizes that a call of the group's kernel is given: what its names stand for here."""
    values = dict(group.lifting.values) if group.lifting else {}
    return [number(values.get(name, symbol(name))) for name in operator.sizes]
