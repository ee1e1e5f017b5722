"""Running statistics: what norms in training leave in the module's buffers.

Export shows the new value of each buffer as a result beside the outputs. The running statistics of
a norm and the count of its calls are known here; any other buffer that a forward changes leaves it
to the original.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.modules.batchnorm import _BatchNorm

from opweld.errors import OriginalKept

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


def mark_averages(module: nn.Module) -> None:
    """Gives norms in training without a momentum NaN for one: export cannot read the count for it.

    Raises OriginalKept where norms ask other processes.
    """
    for child in (each for each in module.modules() if each.training):
        if isinstance(child, nn.SyncBatchNorm):
            raise OriginalKept("a SyncBatchNorm takes its statistics over processes")
        if type(child).forward is _BatchNorm.forward and child.momentum is None:
            child.momentum = math.nan


def tracked_norms(program: ExportedProgram) -> tuple[TrackedNorm, ...]:
    """The norms that change buffers, in order. Raises OriginalKept for any other change."""
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
    for name, node in changes.items():
        if not (_is_statistic(name, node, found) or times[name] == counts[name] > 0):
            raise OriginalKept(f"the forward changes the buffer {name}", where=where_in([node]))
    return found


def _changes(program: ExportedProgram) -> dict[str, fx.Node]:
    """The new value of each buffer, by the buffer's name."""
    nodes = {node.name: node for node in program.graph.nodes}
    returned = set()
    changes = {}
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.BUFFER_MUTATION:
            changes[str(spec.target)] = nodes[spec.arg.name]
        elif spec.kind is OutputKind.USER_OUTPUT:
            returned.add(spec.arg.name)
        else:
            what = _CHANGED.get(spec.kind, "")
            where = where_in([nodes[spec.arg.name]])
            raise OriginalKept(f"the forward changes {what}{spec.target}", where=where)
    statistics = {n: "running statistics" for n in program.graph.nodes if _is_new_statistic(n)}
    changed = {node: f"the buffer {name}" for name, node in changes.items()}
    for node, what in {**changed, **statistics}.items():
        if node.name in returned or not all(_hands_on(node, user) for user in node.users):
            raise OriginalKept(f"the forward changes {what}", where=where_in([node]))
    return changes


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
