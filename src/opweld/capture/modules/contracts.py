"""What must hold at a call for a captured graph to stand for the forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from opweld.errors import CaptureError
from opweld.ir.contract import Contract, InputFact, SymbolFact, WeightFact
from opweld.ir.expr import symbol
from opweld.ir.graph import Graph, Node, topological
from opweld.ir.ops import Op

from ..arguments import Arguments, bind
from ..exporting.export import Exported, NeedsFixedSizes
from ..ops.draws import draws_by_memory
from ..outputs import root_of
from ..specialise import canonical, specialise
from ..task import InMode, Task
from .access import weight_access, weight_at
from .facts import module_facts


def contract_of(mode: InMode, flags: Mapping[str, bool]) -> Contract:
    task, graph = mode.task, mode.exported.graph
    used = without_unused(graph)
    assigned = {each.buffer for each in graph.updates if each.assigned}
    kept = [node for node in used.weights if node.attrs.access not in assigned]
    others = [node for node in used.weights if node.attrs.access in assigned]
    return Contract(
        signature=task.arguments.signature,
        inputs=(*_input_facts(task.arguments, graph), *_tie_facts(task.module, used)),
        weights=tuple(_weight_fact(task.module, node) for node in kept),
        modules=module_facts(task.module, mode.reads, flags),
        symbols=_symbol_facts(task, mode.exported),
        row_major=_needs_order(graph),
        gradients=not mode.exported.own_gradients,
        assigned=tuple(InputFact(n.attrs.access, n.type) for n in others),
    )


def _weight_fact(module: nn.Module, node: Node) -> WeightFact:
    path = _path(node.attrs.access)
    found = weight_at(module, path)
    layout = found.layout if isinstance(found, torch.Tensor) else torch.strided
    return WeightFact(path, node.type, str(layout).removeprefix("torch."))


def _needs_order(graph: Graph) -> bool:
    """Whether random numbers go to the elements of a tensor, in the order in which these lie."""
    calls = [node for node in graph.nodes() if node.op is Op.CALL and node.inputs]
    return any(call.attrs.draws and draws_by_memory(call.attrs.target) for call in calls)


def _path(access: str) -> str:
    return (
        access.replace("['", ".")
        .replace("']", "")
        .replace("[", ".")
        .replace("]", "")
        .replace("._modules.", ".")
        .replace("._parameters.", ".")
        .removeprefix("self.")
    )


def without_unused(graph: Graph) -> Graph:
    """Without the weights that no output needs and no call changes."""
    needed = {node.serial for node in topological(graph.outputs)}
    used = (n for n in graph.weights if n.serial in needed or n.attrs.access in graph.changed)
    return replace(graph, weights=tuple(used))


def _input_facts(arguments: Arguments, graph: Graph) -> tuple[InputFact, ...]:
    types = {node.attrs.access: node.type for node in graph.inputs}
    containers = tuple(InputFact(text, None, value) for text, value in arguments.container_facts)
    leaves = tuple(
        InputFact(leaf.access, types[leaf.access])
        if leaf.access in types
        else InputFact(leaf.access, None, leaf.value)
        for leaf in arguments.leaves
    )
    return containers + leaves


def _tie_facts(module: nn.Module, used: Graph) -> tuple[InputFact, ...]:
    """A weight of several names is read by one: the others must stay the same tensor."""
    names: dict[int, list[str]] = {}
    weights = (*module.named_parameters(remove_duplicate=False),)
    for path, tensor in (*weights, *module.named_buffers(remove_duplicate=False)):
        names.setdefault(id(tensor), []).append(weight_access(module, path))
    read = {node.attrs.access for node in used.weights}
    return tuple(
        InputFact(f"({first} is {other})", None, True)
        for first, *others in names.values()
        if read & {first, *others}
        for other in others
    )


def _symbol_facts(task: Task, exported: Exported) -> tuple[SymbolFact, ...]:
    places = {name: _place(exported.graph, name) for name in sorted(exported.bounds)}
    tensors = {t.access: t.value for t in task.arguments.tensors}
    sizes = {n: int(tensors[access].shape[axis]) for n, (access, axis) in places.items()}
    facts = []
    for name, place in places.items():
        lower, upper = exported.bounds[name]
        lower = _lowered(task, exported, name, sizes) if lower == 2 else lower
        facts.append(SymbolFact(name, place, lower, upper, sizes[name]))
    return tuple(facts)


def _place(graph: Graph, name: str) -> tuple[str, int]:
    wanted = symbol(name)
    for node in graph.inputs:
        for axis, size in enumerate(node.type.shape):
            if size == wanted:
                return node.attrs.access, axis
    raise NeedsFixedSizes(f"{name} is the size of no input")


def _lowered(task: Task, exported: Exported, name: str, sizes: dict[str, int]) -> int:
    """The least size at which the same graph is right: export itself never looks at 0 and 1."""
    lower = 2
    for size in (1, 0):
        if not _same_at(task, exported, name, {**sizes, name: size}):
            break
        lower = size
    return lower


def _same_at(task: Task, exported: Exported, name: str, sizes: dict[str, int]) -> bool:
    """Whether the module at other sizes, that of `name` among them, is the same graph."""
    try:
        fixed = task.export(frozenset(), _resized(task, exported.graph, name, sizes[name])).graph
    except (CaptureError, NeedsFixedSizes):
        return False
    ours = specialise(exported.graph, sizes)
    return canonical(fixed) == canonical(ours) or (sizes[name] == 0 and _same_nothing(fixed, ours))


def _same_nothing(fixed: Graph, ours: Graph) -> bool:
    """Whether both give empty tensors of the same types by the same PyTorch calls."""
    types = [node.type for node in ours.outputs]
    calls = [[n.attrs.target for n in g.nodes() if n.op is Op.CALL] for g in (fixed, ours)]
    return (
        all(0 in type.shape for type in types)
        and types == [node.type for node in fixed.outputs]
        and [_given(n) for n in fixed.outputs] == [_given(n) for n in ours.outputs]
        and fixed.structure == ours.structure
        and not fixed.changed
        and not ours.changed
        and calls[0] == calls[1]
    )


def _given(node: Node) -> str | None:
    """The input or weight that an output shows the memory of."""
    root = root_of(node)
    return root.attrs.access if root.op in (Op.INPUT, Op.WEIGHT) else None


def _resized(task: Task, graph: Graph, name: str, size: int) -> Arguments:
    """The same call with another size along the axes of size `name`."""
    wanted = symbol(name)
    shapes = {node.attrs.access: node.type.shape for node in graph.inputs}
    axes = {
        id(t.value): [axis for axis, own in enumerate(shapes.get(t.access, ())) if own == wanted]
        for t in task.arguments.tensors
    }

    def cut(leaf: Any) -> Any:
        if not axes.get(id(leaf)):
            return leaf
        part = leaf.detach()
        for axis in axes[id(leaf)]:
            part = part.narrow(axis, 0, size)
        return part.clone().requires_grad_(leaf.requires_grad)

    given = (task.arguments.args, task.arguments.kwargs)
    args, kwargs = pytree.tree_map(cut, given)
    return bind(task.module, args, kwargs)
