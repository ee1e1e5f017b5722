"""Which captures are made, and what their comparison tells: sizes, modes, autocast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from opweld.errors import CaptureError, OriginalKept
from opweld.ir.contract import (
    Capture,
    Contract,
    InputFact,
    SymbolFact,
    Variant,
    WeightFact,
)
from opweld.ir.expr import Expr, symbol
from opweld.ir.graph import Graph, Node, topological
from opweld.ir.ops import Op

from .access import weight_access
from .arguments import Arguments, bind
from .autocast import autocast_acts, without_library_casts
from .draws import draws_by_memory
from .dtypes import FROM_TORCH
from .export import Exported, NeedsFixedSizes, export_graph
from .facts import Reads, module_facts, recording
from .outputs import root_of
from .preserve import modes_in_training, unchanged
from .running import mark_averages
from .specialise import canonical, specialise

_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Task:
    module: nn.Module
    arguments: Arguments
    name: str
    given_back: frozenset[str]
    training: bool = False

    def export(
        self,
        dynamic: frozenset[str],
        arguments: Arguments | None = None,
        autocast: torch.dtype | None = None,
    ) -> Exported:
        with torch.enable_grad(), unchanged(self.module, self.training):
            if self.training:
                mark_averages(self.module)
            return export_graph(
                self.module,
                arguments or self.arguments,
                dynamic,
                self.name,
                autocast,
                self.given_back,
            )


@dataclass(frozen=True, slots=True)
class _Mode:
    """The module in eval or in training: its graph, the inputs of dynamic size, what was read."""

    task: _Task
    exported: Exported
    dynamic: frozenset[str]
    reads: Reads


def capture_variants(
    module: nn.Module,
    arguments: Arguments,
    *,
    name: str,
    batch: bool,
    given_back: frozenset[str] = _NONE,
) -> Capture:
    """The capture in each mode and autocast state. Raises CaptureError."""
    if not arguments.tensors:
        raise CaptureError("none of the inputs is a tensor", next_step="give at least one tensor")
    task = _Task(module, arguments, name, given_back)
    plain = _in_mode(task, _candidates(arguments) if batch else _NONE)
    kept = _kept_for_gradients(plain)
    if not plain.reads.mode_readers():
        return Capture(name, _states(plain, {}), kept)
    try:
        trained = _in_mode(replace(task, training=True), plain.dynamic)
        modes = modes_in_training(module)
    except (CaptureError, NeedsFixedSizes) as error:
        kept = (*kept, ("training", str(error)))
        return Capture(name, _states(plain, _all_in_eval(module)), kept)
    if _alike(trained.exported, plain.exported):
        return Capture(name, _states(plain, {}), kept)
    in_eval = _states(plain, _all_in_eval(module))
    return Capture(name, (*in_eval, *_states(trained, modes)), kept)


def _alike(left: Exported, right: Exported) -> bool:
    """Whether two captures have the same results and the same gradients."""
    same = canonical(left.graph) == canonical(right.graph)
    return same and left.own_gradients == right.own_gradients


def _kept_for_gradients(mode: _Mode) -> tuple[tuple[str, str], ...]:
    said = mode.exported.own_gradients
    return (("with gradients", said),) if said else ()


def _all_in_eval(module: nn.Module) -> dict[str, bool]:
    return {path: False for path, _ in module.named_modules(remove_duplicate=False)}


def _in_mode(task: _Task, candidates: frozenset[str]) -> _Mode:
    with recording(task.module) as reads:
        exported, dynamic = _widest(task, candidates)
    if reads.writes:
        raise OriginalKept(f"the forward assigns to self.{reads.writes[0]}")
    return _Mode(task, exported, dynamic, reads)


def _states(mode: _Mode, modes: Mapping[str, bool]) -> tuple[Variant, ...]:
    """The variants of one mode: without autocast, and under each autocast that makes another."""
    task, training = mode.task, mode.task.training
    name = "training" if training else task.name
    plain = Variant(
        name, None, _used(mode.exported.graph), _contract(mode, modes), training=training
    )
    others, also = [], []
    for label, dtype in _AUTOCAST.items():
        try:
            other = _under_autocast(mode, plain, dtype)
        except (CaptureError, NeedsFixedSizes):
            continue  # under this autocast the original runs
        if other is None:
            also.append(label)
        else:
            named = f"training {label}" if training else label
            others.append(replace(other, name=named, autocast=label))
    return (replace(plain, also=tuple(also)), *others)


def _candidates(arguments: Arguments) -> frozenset[str]:
    """Inputs whose leading size may be the batch: the most common leading size of at least 2."""
    sizes = {t.access: t.value.shape[0] for t in arguments.tensors if t.value.dim()}
    counts = Counter(size for size in sizes.values() if size >= 2)
    if not counts:
        return _NONE
    most = max(counts.values())
    common = next(size for size in sizes.values() if counts[size] == most)
    return frozenset(access for access, size in sizes.items() if size == common)


def _widest(task: _Task, candidates: frozenset[str]) -> tuple[Exported, frozenset[str]]:
    """With a symbolic batch if export proves the graph for a range of sizes, fixed if not."""
    if candidates:
        try:
            exported = task.export(candidates)
            if exported.bounds:
                return exported, _dynamic(exported.graph)
        except (CaptureError, NeedsFixedSizes):
            pass  # where sizes are not the trouble, it is told with those of the example
    return task.export(_NONE), _NONE


def _dynamic(graph: Graph) -> frozenset[str]:
    """The inputs whose leading size export kept symbolic."""
    typed = [node for node in graph.inputs if node.type.rank]
    return frozenset(n.attrs.access for n in typed if isinstance(n.type.shape[0], Expr))


def _contract(mode: _Mode, modes: Mapping[str, bool]) -> Contract:
    task, graph = mode.task, mode.exported.graph
    used = _used(graph)
    return Contract(
        signature=task.arguments.signature,
        inputs=(*_input_facts(task.arguments, graph), *_tie_facts(task.module, used)),
        weights=tuple(WeightFact(_path(n.attrs.access), n.type) for n in used.weights),
        modules=module_facts(task.module, mode.reads, modes),
        symbols=_symbol_facts(task, mode.exported),
        row_major=_needs_order(graph),
        gradients=not mode.exported.own_gradients,
    )


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


def _used(graph: Graph) -> Graph:
    """Without the weights that no output needs and no call changes."""
    needed = {node.serial for node in topological(graph.outputs)}
    changed = {buffer for each in graph.tracked for buffer in each.buffers}
    used = (n for n in graph.weights if n.serial in needed or n.attrs.access in changed)
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


def _symbol_facts(task: _Task, exported: Exported) -> tuple[SymbolFact, ...]:
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


def _lowered(task: _Task, exported: Exported, name: str, sizes: dict[str, int]) -> int:
    """The least size at which the same graph is right: export itself never looks at 0 and 1."""
    lower = 2
    for size in (1, 0):
        if not _same_at(task, exported, name, {**sizes, name: size}):
            break
        lower = size
    return lower


def _same_at(task: _Task, exported: Exported, name: str, sizes: dict[str, int]) -> bool:
    """Whether the module at other sizes, that of `name` among them, is the same graph."""
    try:
        fixed = task.export(_NONE, _resized(task, exported.graph, name, sizes[name])).graph
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
        and not fixed.tracked
        and not ours.tracked
        and calls[0] == calls[1]
    )


def _given(node: Node) -> str | None:
    """The input or weight that an output shows the memory of."""
    root = root_of(node)
    return root.attrs.access if root.op in (Op.INPUT, Op.WEIGHT) else None


def _resized(task: _Task, graph: Graph, name: str, size: int) -> Arguments:
    """The same call with another size along the leading axis of the inputs of size `name`."""
    of_size = {n.attrs.access for n in graph.inputs if n.type.shape[:1] == (symbol(name),)}
    wanted = {id(t.value) for t in task.arguments.tensors if t.access in of_size}

    def cut(leaf: Any) -> Any:
        if id(leaf) not in wanted:
            return leaf
        return leaf.detach()[:size].clone().requires_grad_(leaf.requires_grad)

    given = (task.arguments.args, task.arguments.kwargs)
    args, kwargs = pytree.tree_map(cut, given)
    return bind(task.module, args, kwargs)


def _under_autocast(mode: _Mode, plain: Variant, dtype: torch.dtype) -> Variant | None:
    """The variant under autocast; None where the graph is the same."""
    if not autocast_acts(plain.graph):
        return None
    graph = _used(mode.task.export(mode.dynamic, autocast=dtype).graph)
    if canonical(graph) == canonical(plain.graph):
        return None
    return replace(plain, graph=without_library_casts(graph, FROM_TORCH[dtype]))
