"""The forward of the emitted class, and those of the user's classes that it calls.

What ran in one call of a module is a method of the module's class, which modules that compute alike
have in common; a row of such calls on the items of a list is a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.calls import place_of
from ..ir.contract import ModuleFact
from ..ir.graph import CALL_DEVICE, Graph, Leaf, ModuleCall, Node, Origin, Record, Tracking
from ..ir.loop import loop_of
from ..ir.operator import Operator
from ..ir.ops import Op
from ..ir.plan import Group, Plan
from .body import Body, ending, inside, names_size, sizes_given
from .changes import (
    noted,
    source_text,
    towards_of,
    tracked_at_once,
    tracked_together,
    updated,
)
from .lookups import looked_up_once
from .loops.items import Called, Loop, in_loops, result_name, show_call, write_loop
from .loops.turns import Turn, closed, opened
from .methods import Methods
from .spans import Span
from .spelling.calls import channels_first, channels_last
from .spelling.composites import Call, calls
from .spelling.ops import maker_name, number
from .spelling.selects import selects_joined
from .steps import Flow, Scope, Step, below, flow_of, format_line, is_value, scopes_of, tracked_in

# Modules whose forward is one call with numbers of theirs, and the operator that it is. Methods
# call the modules, so that those of other numbers have them in common; the forward itself, which
# nothing else shares, is 2 to 4 us quicker with the call written out.
_LAYERS = {
    "torch.nn.modules.conv:Conv1d": "aten.conv1d.default",
    "torch.nn.modules.conv:Conv2d": "aten.conv2d.default",
    "torch.nn.modules.conv:Conv3d": "aten.conv3d.default",
}

NO_TURNS: Mapping[str, Turn] = {}


def forward(
    plan: Plan,
    operators: Mapping[str, Operator],
    device: str,
    symbols: list[str],
    parameters: tuple[str, ...],
    spans: Sequence[Span] = (),
    modules: Sequence[ModuleFact] = (),
    methods: Methods | None = None,
    turns: Mapping[str, Turn] = NO_TURNS,
) -> list[str]:
    """The statements of the new forward, `return` included.

    `device` is the text of the device of the call, `symbols` the lines that read symbolic sizes;
    `spans` are the groups that run under one gradient, `modules` what was captured of the module
    and those below it. New forwards of these go to `methods`. `turns` has the bodies of loops by
    their labels.
    """
    graph = plan.graph
    symbols = [*symbols, *format_line(graph)]
    steps, returned = _steps(plan, operators, spans, _root_body(plan, symbols, parameters))
    returned += [graph.outputs[each.value] for each in graph.updates]
    flow = flow_of(steps, returned)
    scope = scopes_of(flow)
    together = tracked_together(graph)
    tracked = None
    if len(together) == 1:
        tracked = tracked_in(flow, scope, towards_of(graph, together[0]))
    if tracked is None and graph.tracked:
        towards = [node for _, nodes in towards_of(graph, graph.tracked) for node in nodes]
        flow = flow_of(steps, [*returned, *towards])
        scope = Scope(None, 0, len(steps) - 1, [*range(len(steps))])
    facts = {fact.path: fact for fact in modules}
    forwards = _Forwards(graph, flow, facts, symbols, methods or Methods(), tracked or {}, turns)
    body = _root_body(plan, symbols, parameters)
    forwards.write(body, scope)
    if "_tracked" in forwards.used:
        body.lines.insert(0, "_tracked = [[], [], []]")
        body.lines.append(f"_kernels.track({graph.tracked[0].momentum}, *_tracked)")
    else:
        for each in together:
            body.lines += tracked_at_once(graph, body, each)
    result = _returned(graph, body, graph.structure)
    assigned: list[str] = []
    if graph.updates:
        result, assigned = updated(graph, body, result)
    used = [f"_device = {device}", *symbols]
    used = [line for line in used if names_size(line, [*body.lines, result])]
    if assigned:  # what is looked up once is no place to assign to
        lines = [*looked_up_once(body.lines, body.fresh), *assigned, f"return {result}"]
    else:
        lines = looked_up_once(ending(body.lines, result), body.fresh)
    return [*used, *lines]


def _root_body(plan: Plan, symbols: list[str], parameters: tuple[str, ...]) -> Body:
    graph = plan.graph
    lists = frozenset(g.tensor_list for g in plan.groups if g.tensor_list is not None)
    body = Body(graph, "_device", lists=lists)
    body.taken.update((*parameters, "_kernels", "_device", "_tracked"))
    for source in (*graph.inputs, *graph.weights):
        body.texts[source.serial] = source_text(graph, source, source.attrs.access)
    body.taken.update(line.split(" ", 1)[0] for line in symbols)
    _wish_for_statistics(body, graph)
    return body


def _wish_for_statistics(body: Body, graph: Graph) -> None:
    for each in graph.tracked:
        values = (graph.outputs[place].serial for place in each.towards)
        body.wishes.update(zip(values, ("batch_mean", "batch_variance"), strict=True))


def _steps(
    plan: Plan, operators: Mapping[str, Operator], spans: Sequence[Span], body: Body
) -> tuple[list[Step], list[Node]]:
    """The statements of a forward written out, and the values that its end reads."""
    known = {*body.texts, *(node.serial for node in body.lists)}
    steps: list[Step] = []
    for group, operator in _computed(plan, operators, spans):
        body.asked.clear()
        statement(body, group, operator, {}, "self")
        asked = {**body.asked, **{node.serial: node for node in group.outputs}}
        values = [node for node in asked.values() if is_value(node)]
        made = tuple(node for node in values if node.serial not in known)
        read = tuple(node for node in values if node.serial in known)
        chain, across = place_of(made if operator is None else inside(group), body.origins)
        steps.append(
            Step(group, operator, made, read, chain, frozenset(call.key for call in across))
        )
        known.update(node.serial for node in made)
    body.asked.clear()
    _returned(plan.graph, body, plan.graph.structure)
    return steps, [node for node in body.asked.values() if node.serial in known]


def _computed(
    plan: Plan, operators: Mapping[str, Operator], spans: Sequence[Span]
) -> Iterable[tuple[Group, Operator | None]]:
    """The groups in their order; those of a span as one, in the place of its last."""
    span_of = {part.outputs[0].serial: span for span in spans for part in span.parts}
    for group in selects_joined(plan.graph, plan.groups):
        span = span_of.get(group.outputs[0].serial)
        if span is None:
            yield group, operators.get(group.name)
        elif group is span.parts[-1]:
            yield span.whole, span.operator


@dataclass(slots=True)
class _Forwards:
    """Writes functions for the scopes of one forward. `tracked` has the statistics by the step that
    makes them, `used` names of the forward's own that were given to methods. The body of a loop is
    in the function of the module `access`; each of its turns reads what is `held`.
    """

    graph: Graph
    flow: Flow
    facts: Mapping[str, ModuleFact]
    symbols: list[str]
    methods: Methods
    tracked: Mapping[int, list[Tracking]]
    turns: Mapping[str, Turn] = field(default_factory=dict)
    access: str = "self"
    held: frozenset[int] = frozenset()
    used: set[str] = field(default_factory=set)

    def write(self, body: Body, scope: Scope) -> None:
        """The statements of a scope in its own function, but for what that returns."""
        items = [self._called(each) if isinstance(each, Scope) else each for each in scope.items]
        own = [each for each in items if isinstance(each, int)]
        tracked = [each for number in own for each in self.tracked.get(number, ())]
        kept = {node.serial for _, nodes in towards_of(self.graph, tracked) for node in nodes}
        kept |= self.held
        access = scope.access if scope.call else self.access
        for item in in_loops(items, self.flow, self.facts):
            first, last = _reach(item)
            ended = self._ended(first, last, kept)
            self._write_item(body, item, access, ended)
            if last < scope.last:
                _give_up(body, ended)
        if tracked and (scope.call is not None or "_tracked" in self.used):
            body.lines += noted(self.graph, body, tracked, scope.access)

    def _write_item(
        self, body: Body, item: int | Called | Loop, access: str, ended: tuple[Node, ...]
    ) -> None:
        if isinstance(item, Loop):
            write_loop(body, item, ended, access)
            return
        if isinstance(item, Called):
            body.passing = ended
            _write_call(body, item, access)
            return
        step = self.flow.steps[item]
        if loop_of(step.group.nodes[-1]):
            self._write_turns(body, step.group.nodes[-1], access, ended)
            return
        # Where it is one line, nothing but that reads what ends here.
        body.passing = ended if step.operator or len(step.made) == 1 else ()
        statement(body, step.group, step.operator, self.facts, access)
        body.passing = ()

    def _write_turns(self, body: Body, call: Node, access: str, ended: tuple[Node, ...]) -> None:
        """A loop over turns, with the statements of its body."""
        loop = loop_of(call)
        assert loop is not None, "a loop is asked for"
        turn, start = self.turns[loop.label], opened(body, call, loop, ended)
        dry, inner = (_turn_body(turn, body, start.texts) for _ in range(2))
        dry.taken = set(body.taken)
        steps, returned = _steps(turn.plan, turn.operators, turn.spans, dry)
        flow = flow_of(steps, [*returned, *turn.plan.graph.outputs])
        given = turn.plan.graph, flow, self.facts, self.symbols, self.methods
        forwards = _Forwards(*given, {}, self.turns, access, start.held)
        forwards.write(inner, scopes_of(flow))
        self.used.update(forwards.used)
        closed(body, inner, call, loop, start)

    def _ended(self, first: int, last: int, kept: set[int]) -> tuple[Node, ...]:
        """The values of these steps that later ones do not read."""
        steps = self.flow.steps[first : last + 1]
        nodes = {n.serial: n for step in steps for n in (*step.needed, *step.made)}
        last_read = self.flow.last_read
        return tuple(
            nodes[serial]
            for serial in sorted(nodes.keys() - kept)
            if last_read.get(serial, -1) <= last and nodes[serial].op is not Op.WEIGHT
        )

    def _called(self, scope: Scope) -> Called:
        """The call of a method with the statements of `scope`."""
        assert scope.call is not None, "only the forward itself has no call"
        reads = self.flow.read_by(scope.first, scope.last)
        own = {
            n.serial: source_text(self.graph, n, text)
            for n in reads
            if (text := _own_weight(n, scope.access))
        }
        arguments = tuple(node for node in reads if node.serial not in own)
        lists = self.flow.lists.keys()
        body = Body(self.graph, "_device", texts=own, lists=lists, tells=scope.call.writes)
        body.taken.update(("_kernels", "_device", "_tracked"))
        body.taken.update(line.split(" ", 1)[0] for line in self.symbols)
        _wish_for_statistics(body, self.graph)
        for node in arguments:
            wish = node.attrs.name if node.op is Op.WEIGHT else "x"
            body.texts[node.serial] = body.fresh(wish)
        names = [body.texts[node.serial] for node in arguments]
        tensors = [pair for pair in zip(arguments, names, strict=True) if pair[0] not in lists]
        sizes = _sizes_shown(tensors)
        self.write(body, scope)
        results = tuple(self.flow.made_by(scope.first, scope.last))
        lines = ending(body.lines, ", ".join(body.texts[node.serial] for node in results))
        missing = [line.split(" ", 1)[0] for line in self.symbols] + ["_device", "_tracked"]
        missing = [name for name in missing if names_size(f"{name} ", lines)]
        lines = [*(f"{name} = {sizes[name]}" for name in missing if name in sizes), *lines]
        lines = looked_up_once(lines, body.fresh)
        extra = tuple(name for name in missing if name not in sizes)
        self.used.update(extra)
        parameters = ", ".join(["self", *names, *extra, "_kernels"])
        method = self.methods.name_of(scope.call.type_name, parameters, lines)
        return Called(scope.call, scope, method, arguments, results, extra)


def _turn_body(turn: Turn, around: Body, texts: Mapping[int, str]) -> Body:
    """The body of a loop in the function `around` it, whose names it does not take."""
    lists = frozenset(g.tensor_list for g in turn.plan.groups if g.tensor_list is not None)
    inner = Body(turn.plan.graph, around.device, dict(texts), lists=lists, tells=around.tells)
    inner.taken, inner.place = around.taken, around.place
    return inner


def _reach(item: int | Called | Loop) -> tuple[int, int]:
    """The first and the last step of an item."""
    if isinstance(item, Loop):
        return item.calls[0].scope.first, item.calls[-1].scope.last
    return (item.scope.first, item.scope.last) if isinstance(item, Called) else (item, item)


def _give_up(body: Body, ended: Iterable[Node]) -> None:
    """Frees names of intermediates that nothing reads any more, and so their memory."""
    known = [node.serial for node in ended if node.serial in body.texts]
    gone = [serial for serial in known if body.texts[serial] in body.assigned]
    if gone:
        body.lines.append(f"del {', '.join(body.texts.pop(serial) for serial in gone)}")


def _own_weight(node: Node, access: str) -> str | None:
    """The text of a weight below the module with this access."""
    return below(node.attrs.access, access) if node.op is Op.WEIGHT else None


def _sizes_shown(tensors: Iterable[tuple[Node, str]]) -> dict[str, str]:
    """Symbolic sizes by their names, as tensors of these names show them."""
    found: dict[str, str] = {}
    for node, name in tensors:
        for axis, size in enumerate(node.type.shape):
            if not isinstance(size, int):
                found.setdefault(number(size), f"{name}.shape[{axis}]")
    return found


def _write_call(body: Body, called: Called, access: str) -> None:
    module = below(called.call.access, access)
    assert module is not None, "a call that is not below its caller is written out"
    show_call(body, called.call)
    wish = result_name(called.call)
    body.wishes.update((node.serial, wish) for node in called.results)
    given = [module, *map(body.text, called.arguments), *called.extra, "_kernels"]
    body.define(called.results, f"{called.method}({', '.join(given)})")


def statement(
    body: Body,
    group: Group,
    operator: Operator | None,
    facts: Mapping[str, ModuleFact],
    access: str,
) -> None:
    """What gives the results of a group their names, in the function of the module `access`."""
    if operator is None:
        body.calls.update(calls(group.nodes))
        body.calls.update(_layer_calls(body, group.nodes, facts, access))
        for node in group.outputs:
            body.text(node)
        return
    arguments = [*map(body.text, group.inputs), *sizes_given(group, operator)]
    for line in _lines_of(group, body.origins):
        body.show(line)
    body.made(group.outputs, f"_kernels.{operator.name}({', '.join(arguments)})")


def _lines_of(group: Group, origins: Mapping[int, Origin]) -> list[tuple[str, str]]:
    """The user's lines that a kernel computes, but for those of other modules: by calls in their
    order, and within one as they stand in its file.
    """
    nodes = inside(group)
    nodes = (group.tensor_list, *nodes) if group.tensor_list else nodes
    chain, _ = place_of(nodes, origins)
    keys = {call.key for call in chain[-1:]} if chain else set()
    # Equal constants of several lines are one node, which has the first line.
    found = [origins[node.serial] for node in nodes if node.inputs and node.serial in origins]
    own = [each for each in found if keys <= {call.key for call in each.calls}]
    by_call: dict[tuple[str, ...], dict[tuple[str, str], None]] = {}
    for each in own:
        lines = by_call.setdefault(tuple(call.key for call in each.calls), {})
        lines[each.place, each.line] = None
    return [line for lines in by_call.values() for line in sorted(lines, key=_line_number)]


def _line_number(line: tuple[str, str]) -> int:
    return int(line[0].rpartition(":")[2])


def _layer_calls(
    body: Body, nodes: Iterable[Node], facts: Mapping[str, ModuleFact], access: str
) -> dict[int, Call]:
    """In methods, calls that are all that one of torch's layers does, as calls of the layer."""
    found: dict[int, Call] = {}
    for node in nodes if access != "self" else ():
        origin = body.origins.get(node.serial) if node.op is Op.CALL else None
        layer = origin.calls[-1] if origin and origin.calls else None
        if layer is None or not _is_layer(layer, node, facts.get(layer.path)):
            continue
        text = below(layer.access, access)
        if text is not None and "{" not in text:
            name = node.attrs.target.split(".")[1]
            first = channels_first(node) if node.attrs.channels_last else ""
            called = f"{text}({{x}}{first}){channels_last(node)}"
            found[node.serial] = Call(name, called, node.inputs[:1])
    return found


def _is_layer(layer: ModuleCall, node: Node, fact: ModuleFact | None) -> bool:
    """Whether a call is a layer's on its own weights, with nothing before it."""
    if _LAYERS.get(layer.type_name) != node.attrs.target or fact is None:
        return False
    weights = [each.attrs.access for each in node.inputs[1:] if each.op is Op.WEIGHT]
    own = [f"{layer.access}.{name}" for name in ("weight", "bias")][: layer.num_tensors]
    whole = len(node.inputs) == 1 + len(own) and weights == own
    return whole and dict(fact.attributes).get("padding_mode", "zeros") == "zeros"


def _returned(graph: Graph, body: Body, structure: Any) -> str:
    if isinstance(structure, Leaf):
        return body.tensor(graph.outputs[structure.index])
    if isinstance(structure, Record):
        fields = [f"{key}={_returned(graph, body, part)}" for key, part in structure.fields]
        return f"_kernels.{maker_name(structure)}({', '.join(fields)})"
    kind, items = structure
    if kind == "const":
        return _constant(items, body)
    if kind == "dict":
        entries = [f"{key!r}: {_returned(graph, body, item)}" for key, item in items]
        return f"{{{', '.join(entries)}}}"
    texts = ", ".join(_returned(graph, body, item) for item in items)
    if kind == "list":
        return f"[{texts}]"
    return f"({texts},)" if len(items) == 1 else f"({texts})"


def _constant(value: Any, body: Body) -> str:
    if value is CALL_DEVICE:
        return body.device
    return f'torch.device("{value}")' if type(value).__name__ == "device" else number(value)
