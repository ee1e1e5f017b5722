"""What a forward leaves in the module's buffers: running statistics of norms, and new values.

Export shows the new value of each buffer as a result beside the outputs. The running statistics of
a norm in training and the count of its calls are moved in place; any other buffer takes the value
that the graph computes.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.modules.batchnorm import _BatchNorm

from opweld.errors import OriginalKept

from .aliases import place_of, written_by
from .arguments import Arguments
from .modules.origins import where_in

_CHANGED = {
    OutputKind.BUFFER_MUTATION: "the buffer ",
    OutputKind.USER_INPUT_MUTATION: "its input ",
}
# Places of the running mean and variance among the operator's arguments, and among its results.
_GIVEN, _MADE = (3, 4), (3, 4)
_CAST = torch.ops.aten._to_copy.default
_MEAN = "running_mean"


@dataclass(frozen=True, slots=True)
class TrackedNorm:
    """A call that moves buffers, named by their dotted names, `momentum` of the way to its results
    3 and 4; None is 1 / count.
    """

    call: fx.Node
    mean: str
    variance: str
    count: str | None
    momentum: float | None

    @property
    def buffers(self) -> tuple[str, ...]:
        return (self.mean, self.variance, *([] if self.count is None else [self.count]))


def mark_averages(module: nn.Module) -> None:
    """Gives norms in training without a momentum NaN for one: export cannot read the count for it.

    Raises OriginalKept where norms ask other processes.
    """
    for child in (each for each in module.modules() if each.training):
        if isinstance(child, nn.SyncBatchNorm):
            raise OriginalKept("a SyncBatchNorm takes its statistics over processes")
        if type(child).forward is _BatchNorm.forward and child.momentum is None:
            child.momentum = math.nan


@dataclass(frozen=True, slots=True)
class Changes:
    """The norms that move buffers, in order, and the new values of other buffers by their names;
    in eager a buffer would get a gradient from those that are `differentiable`.
    """

    norms: tuple[TrackedNorm, ...]
    values: Mapping[str, fx.Node]
    differentiable: frozenset[str]


def written_with_gradients(program: ExportedProgram) -> frozenset[str]:
    """The placeholders that are written to where gradients are recorded, before parts without
    gradients are put in their place.
    """
    written = {place_of(given) for node in program.graph.nodes for given in written_by(node)}
    placeholders = (node for node in program.graph.nodes if node.op == "placeholder")
    return frozenset(node.name for node in placeholders if place_of(node) in written - {None})


def changes_of(program: ExportedProgram, recorded: frozenset[str]) -> Changes:
    """What a call changes; `recorded` are the placeholders that are written to where gradients are
    recorded. Raises OriginalKept for what is no value that the graph could give.
    """
    changes = _changes(program)
    buffers = {
        spec.arg.name: str(spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.BUFFER
    }
    given = {name: placeholder for placeholder, name in buffers.items()}
    counts = {name: _counted(node, given[name]) for name, node in changes.items()}
    norms = [node for node in program.graph.nodes if _tracks(node) or _tracks_unseen(node)]
    found = tuple(_tracked(norm, buffers, counts) for norm in norms)
    times = Counter(norm.count for norm in found)
    values = {
        name: node
        for name, node in changes.items()
        if not (_is_statistic(name, node, found) or times[name] == counts[name] > 0)
    }
    _require_unread(program, {n: v for n, v in changes.items() if n not in values})
    for name in values.keys() & {name for norm in found for name in norm.buffers}:
        raise OriginalKept(f"the forward changes the buffer {name}", where=where_in([values[name]]))
    constants = without_gradients(program)
    differentiable = {
        name
        for name, node in values.items()
        if given[name] in recorded and differentiates(node, constants)
    }
    return Changes(found, values, frozenset(differentiable))


def without_gradients(program: ExportedProgram) -> frozenset[str]:
    """The placeholders of buffers and constants."""
    kinds = (InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    specs = program.graph_signature.input_specs
    return frozenset(spec.arg.name for spec in specs if spec.kind in kinds)


def differentiates(node: fx.Node, constants: frozenset[str]) -> bool:
    """Whether a gradient may go from a value to another placeholder than those of `constants`."""
    seen, waiting = {node}, [node]
    while waiting:
        value = waiting.pop()
        fake = value.meta.get("val")
        if isinstance(fake, torch.Tensor) and not (fake.is_floating_point() or fake.is_complex()):
            continue
        if value.op == "placeholder" and value.name not in constants:
            return True
        fresh = [each for each in _recorded_from(value) if each not in seen]
        seen.update(fresh)
        waiting += fresh
    return False


def _recorded_from(value: fx.Node) -> list[fx.Node]:
    """The operands that a value has a gradient of."""
    if value.target is torch.ops.aten.detach.default:
        return []
    given = value.all_input_nodes
    return given[1:] if value.target is torch.ops.aten.copy.default else given


def _changes(program: ExportedProgram) -> dict[str, fx.Node]:
    """The new value of each buffer, by the buffer's name."""
    nodes = {node.name: node for node in program.graph.nodes}
    returned = []
    changes = {}
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.BUFFER_MUTATION:
            changes[str(spec.target)] = nodes[spec.arg.name]
        elif spec.kind is OutputKind.USER_OUTPUT:
            returned += [nodes[spec.arg.name]] if getattr(spec.arg, "name", "") in nodes else []
        else:
            what = _CHANGED.get(spec.kind, "")
            where = where_in([nodes[spec.arg.name]])
            raise OriginalKept(f"the forward changes {what}{spec.target}", where=where)
    shown = {place_of(node) for node in returned}
    for name, node in changes.items():
        if node in returned or place_of(node) in shown:
            raise OriginalKept(
                f"the forward returns the buffer {name}, which it changes", where=where_in([node])
            )
    return changes


def _require_unread(program: ExportedProgram, moved: Mapping[str, fx.Node]) -> None:
    """Statistics and counts are moved at the end: nothing else may read their new values."""
    made = {node: "running statistics" for node in program.graph.nodes if _is_new_statistic(node)}
    made |= {node: f"the buffer {name}" for name, node in moved.items()}
    for node, what in made.items():
        if not all(_hands_on(node, user) for user in node.users):
            raise OriginalKept(f"the forward changes {what}", where=where_in([node]))


def _hands_on(node: fx.Node, user: fx.Node) -> bool:
    """Whether `user` gives the changed buffer back, or changes it once more."""
    if user.op == "output" or _is_count(user) or user.target is _CAST:
        return True
    return _tracks(user) and node not in user.args[: _GIVEN[0]]


def _tracks(node: Any) -> bool:
    return node.target is torch.ops.aten._native_batch_norm_legit_functional.default


def _tracks_unseen(node: fx.Node) -> bool:
    """Whether it is an instance norm with running statistics, whose change export does not see."""
    if node.target is not torch.ops.aten.instance_norm.default or not node.args[5]:
        return False
    buffers = [node.args[place] for place in _GIVEN]
    for buffer in buffers:
        if isinstance(buffer, fx.Node) and any(
            user.target is not node.target for user in buffer.users
        ):
            raise OriginalKept("the forward changes running statistics", where=where_in([node]))
    return all(isinstance(buffer, fx.Node) for buffer in buffers)


def _is_new_statistic(node: fx.Node) -> bool:
    node = _before_cast(node)
    return node.target is operator.getitem and _tracks(node.args[0]) and node.args[1] in _MADE


def _is_statistic(name: str, node: fx.Node, norms: tuple[TrackedNorm, ...]) -> bool:
    """Whether `node` is what a norm makes of its buffer `name`."""
    made = {(norm.call, _MADE[0], norm.mean) for norm in norms}
    made |= {(norm.call, _MADE[1], norm.variance) for norm in norms}
    return _is_new_statistic(node) and (*_before_cast(node).args, name) in made


def _before_cast(node: Any) -> Any:
    """Statistics of a 16-bit type are made in float32."""
    return node.args[0] if node.target is _CAST else node


def _is_count(node: fx.Node) -> bool:
    return node.target is torch.ops.aten.add.Tensor and node.args[1:] == (1,)


def _counted(node: fx.Node, placeholder: str) -> int:
    """How often a buffer goes up by one, 0 where anything else happens to it."""
    times, given = 0, node
    while _is_count(given) and len(given.users) == 1:
        times, given = times + 1, given.args[0]  # type: ignore[assignment]
    return times if given.name == placeholder else 0


def _tracked(norm: fx.Node, buffers: Mapping[str, str], counts: Mapping[str, int]) -> TrackedNorm:
    mean, variance = (_buffer(norm, which, buffers) for which in (0, 1))
    momentum: Any = norm.args[6]
    count = _beside(mean, "num_batches_tracked")
    if not math.isnan(momentum):
        return TrackedNorm(norm, mean, variance, count if counts.get(count) else None, momentum)
    if counts.get(count) != 1:
        where = where_in([norm])
        raise OriginalKept(f"the forward averages {mean} over more than its calls", where=where)
    return TrackedNorm(norm, mean, variance, count, None)


def _buffer(norm: fx.Node, which: int, buffers: Mapping[str, str]) -> str:
    """The buffer that a norm changes, through the norms that changed it before."""
    given = _before_cast(norm.args[_GIVEN[which]])
    while given.target is operator.getitem:
        before, place = given.args
        if not _tracks(before) or place != _MADE[which]:
            break
        given = _before_cast(before.args[_GIVEN[which]])
    if given.name not in buffers:
        where = where_in([norm])
        raise OriginalKept("the forward changes running statistics of no buffer", where=where)
    return buffers[given.name]


def _beside(mean: str, name: str) -> str:
    """Another buffer of the same norm; in a flat module their names have one beginning."""
    if mean.endswith(_MEAN):
        return mean.removesuffix(_MEAN) + name
    owner, dot, _ = mean.rpartition(".")
    return f"{owner}{dot}{name}"


def refuse_shared(module: nn.Module, arguments: Arguments, names: Iterable[str]) -> None:
    """Raises OriginalKept where a buffer that a call changes has memory that something else of the
    module or the call has, too: a write would show there.
    """
    others = {id(t): t for t in (*module.parameters(), *module.buffers())}
    others |= {id(leaf.value): leaf.value for leaf in arguments.tensors}
    for name in names:
        buffer = module.get_buffer(name)
        place = _memory(buffer)
        if any(each is not buffer and _memory(each) == place for each in others.values()):
            raise OriginalKept(f"the buffer {name}, which the forward changes, shares its memory")


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
