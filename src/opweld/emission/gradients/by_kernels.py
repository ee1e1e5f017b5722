"""The backward of a fused group as a function that calls kernels, planned as a forward is.

def _k1_linear_gelu_backward(_kernels, _need, grad, x, weight, bias, linear):
    grad_x = grad_weight = None
    grad_linear, grad_bias = _kernels.k1_tanh_sum_of_k1(grad, linear)
    if _need[0]:
        grad_x = _kernels.k2_matmul_of_k1(grad_linear, weight)
    ...
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ...ir.graph import Graph, Node, topological
from ...ir.kernels.shared import fused_groups_of
from ...ir.operator import Operator
from ...ir.ops import Op
from ...ir.original import BackwardPart
from ...ir.plan import Group, Plan
from ..backward import Backward, silent_places
from ..body import Body, names_size, parameters, python_name, size_reads
from ..forward import statement
from ..spans import Span
from ..spelling.selects import selects_joined

CONVOLUTION_BACKWARD = "aten.convolution_backward.default"


def by_kernels(made: BackwardPart, group: Group, operator: Operator) -> Backward:
    """The backward of the operator of a group, by the kernels of `made`."""
    vjp, plan = made.vjp, made.part.plan
    names = [python_name(argument.name) for argument in operator.arguments]
    lists = frozenset(g.tensor_list for g in plan.groups if g.tensor_list is not None)
    body = Body(plan.graph, f"{names[0]}.device", lists=lists)
    sizes = [python_name(name) for name in parameters(operator)[len(names) :]]
    body.taken.update(("_kernels", "_need", *names, *sizes))
    count = len(vjp.differentiated)
    sources = [node.attrs.name for node in plan.graph.inputs]
    grads = [body.fresh(name) for name in sources[:count]]
    kept = [body.fresh(f"{name}_out") for name in sources[count + len(names) :]]
    texts = (*grads, *names, *kept)
    body.texts.update(zip((n.serial for n in plan.graph.inputs), texts, strict=True))
    body.wishes.update(
        (node.serial, f"grad_{names[place]}")
        for place, node in zip(vjp.places, plan.graph.outputs, strict=True)
    )
    blocks = _Blocks(body, vjp.places, _wanted(plan.graph))
    blocks.write(plan, {each.name: each for *_, each in fused_groups_of((made.part,))})
    found = blocks.results(plan.graph)
    returned = [found.get(place, "None") for place in range(len(names))]
    returned += ["None" for _ in operator.sizes]
    text = _text(operator, (*grads, *parameters(operator), *kept), blocks, returned)
    left = [node.serial for node in (*group.outputs, *made.saved)]
    return Backward(
        text,
        len(names),
        vjp.differentiated,
        tuple(left.index(node.serial) for node in vjp.kept),
        silent_places(operator, vjp.differentiated),
        (*group.outputs, *made.saved),
        by_kernels=True,
        saving=f'op("{made.saving.plan.groups[0].name}")' if made.saving else "",
        num_saved=len(made.saved),
    )


def span_by_kernels(made: BackwardPart, span: Span) -> Backward:
    """The backward of several kernels under one gradient."""
    closed = by_kernels(made, span.whole.as_compiled, span.operator)
    if made.saving is None:
        return closed
    more = more_results(made, span)
    names = (span.saving(each) if each.name in more else each.name for each in span.parts)
    kernels = ", ".join(f'op("{name}")' for name in names)
    together = f"_{span.operator.name}_saving_together"
    return replace(closed, saving=f"lambda *args: {together}([{kernels}], *args)")


def more_results(made: BackwardPart, span: Span) -> dict[str, tuple[Node, ...]]:
    """What the kernels of a span leave for its backward alone, by the names of their groups."""
    saving = made.saving.plan.groups if made.saving else ()
    known = {span.saving(group): group for group in span.parts}
    return {
        known[group.name].name: group.outputs[len(known[group.name].outputs) :] for group in saving
    }


def _text(
    operator: Operator, given: Collection[str], blocks: _Blocks, returned: Collection[str]
) -> str:
    lines = [*blocks.start, *blocks.lines]
    reads = [line for line in size_reads(operator) if names_size(line, lines)]
    head = f"def _{operator.name}_backward({', '.join(['_kernels', '_need', *given])}):"
    ending = f"return {', '.join(returned)}{',' if len(returned) == 1 else ''}"
    return "\n".join([head, *(f"    {line}" for line in (*reads, *lines, ending))])


def _wanted(graph: Graph) -> dict[int, frozenset[int]]:
    """For each node the outputs that it is computed for, by their numbers."""
    found: dict[int, frozenset[int]] = {}
    for number, output in enumerate(graph.outputs):
        for node in topological((output,)):
            found[node.serial] = found.get(node.serial, frozenset()) | {number}
    return found


def _joined_convolutions(groups: Collection[Group]) -> dict[int, tuple[Node, ...]]:
    """The calls that make the gradients of one convolution, which PyTorch makes in one as well and
    lays out its operands once: by the serial of each.
    """
    found: dict[tuple[object, ...], tuple[Node, ...]] = {}
    for call in (group.nodes[-1] for group in groups):
        if call.op is Op.CALL and call.attrs.target == CONVOLUTION_BACKWARD:
            key = (*(node.serial for node in call.inputs), *map(repr, call.attrs.arguments[:-1]))
            found[key] = (*found.get(key, ()), call)
    return {call.serial: calls for calls in found.values() if len(calls) > 1 for call in calls}


def _mask(call: Node) -> tuple[bool, ...]:
    """Which of its results a call makes."""
    mask: tuple[bool, ...] = call.attrs.arguments[-1]
    return mask


@dataclass(slots=True)
class _Blocks:
    """Statements, those that not all gradients need under the condition that one is wanted that
    does. `places` are the operands whose gradients the outputs are, `wanted` the outputs that each
    node is for; `start` gives names to gradients that nobody wants. The last of the lines stand
    under `condition`.
    """

    body: Body
    places: tuple[int, ...]
    wanted: Mapping[int, frozenset[int]]
    lines: list[str] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    condition: str = ""

    @property
    def start(self) -> list[str]:
        return [f"{' = '.join(self.optional)} = None"] if self.optional else []

    def write(self, plan: Plan, operators: Mapping[str, Operator]) -> None:
        groups = [*selects_joined(plan.graph, plan.groups)]
        joined = _joined_convolutions(groups)
        for group in groups:
            known = set(self.body.texts)
            calls = joined.get(group.nodes[-1].serial, ())
            if calls and calls[0] is not group.nodes[-1]:
                continue
            statement(self.body, group, operators.get(group.name), {}, "self")
            if calls:
                self._ask_for_each(calls)
            made = calls or group.outputs
            made_for = (self.wanted.get(node.serial, frozenset()) for node in made)
            self._close(frozenset().union(*made_for), known)

    def _ask_for_each(self, calls: tuple[Node, ...]) -> None:
        """The last line is one call for what several make, each result where it is wanted."""
        first, *_ = calls
        asked = ["False"] * len(_mask(first))
        for call in calls:
            asked[_mask(call).index(True)] = self._needs(self.wanted[call.serial])
            self.body.texts[call.serial] = self.body.texts[first.serial]
        mask = f"{[*_mask(first)]})"
        assert self.body.lines[-1].endswith(mask), "the mask is the last argument"
        self.body.lines[-1] = self.body.lines[-1].removesuffix(mask) + f"[{', '.join(asked)}])"

    def _needs(self, wanted: frozenset[int]) -> str:
        """Whether one of these outputs is wanted."""
        return " or ".join(f"_need[{self.places[number]}]" for number in sorted(wanted))

    def results(self, graph: Graph) -> dict[int, str]:
        """The texts of the gradients, by the places of their operands."""
        found: dict[int, str] = {}
        for number, (place, node) in enumerate(zip(self.places, graph.outputs, strict=True)):
            known = set(self.body.texts)
            text = self.body.tensor(node)
            is_made = text in self.body.assigned
            if len(self.places) > 1 and not is_made and not text.isidentifier():
                name = self.body.fresh(self.body.wishes[node.serial])
                self.body.lines.append(f"{name} = {text}")
                text, is_made = name, True
            self._close(frozenset([number]), known)
            if is_made and self._is_optional(self.wanted[node.serial]):
                self.optional.append(text)
            found[place] = text
        self.optional = list(dict.fromkeys(self.optional))
        return found

    def _is_optional(self, wanted: frozenset[int]) -> bool:
        return len(wanted) < len(self.places)

    def _close(self, wanted: frozenset[int], known: set[int]) -> None:
        """Takes the lines of the body, which the outputs `wanted` need. What others need as well is
        not `known` behind them.
        """
        lines, self.body.lines = self.body.lines, []
        if not self._is_optional(wanted):
            self.lines += lines
            self.condition = "" if lines else self.condition
            return
        if any(not line.startswith("#") for line in lines):
            condition = f"if {self._needs(wanted)}:"
            self.lines += [condition] if condition != self.condition else []
            self.lines += [f"    {line}" for line in lines]
            self.condition = condition
        for serial in self.body.texts.keys() - known:
            if not self.wanted.get(serial, frozenset()) <= wanted:
                del self.body.texts[serial]
