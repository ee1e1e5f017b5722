"""One capture: a module, an example call and a mode, exported for as many sizes as is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from opweld.errors import CaptureError, UserError
from opweld.ir.contract import Needs
from opweld.ir.expr import Expr
from opweld.ir.graph import Graph

from .arguments import Arguments
from .exporting.export import Exported, NeedsFixedSizes, export_graph
from .modules.access import weight_access
from .modules.facts import Reads
from .modules.preserve import OWN, unchanged
from .running import mark_averages

Axes = frozenset[tuple[str, int]]
"""Axes of inputs, which are known by their accesses."""

_NONE: frozenset[str] = frozenset()
_NO_AXES: Axes = frozenset()


@dataclass(frozen=True, slots=True)
class Task:
    module: nn.Module
    arguments: Arguments
    name: str
    given_back: frozenset[str]
    needs: Needs
    mode: str = OWN
    dtype: str = ""
    assigned: frozenset[str] = _NONE

    def export(
        self,
        dynamic: Axes,
        arguments: Arguments | None = None,
        autocast: torch.dtype | None = None,
    ) -> Exported:
        with torch.enable_grad(), unchanged(self.module, self.mode):
            mark_averages(self.module)
            exported = export_graph(
                self.module,
                arguments or self.arguments,
                dynamic,
                self.name,
                autocast,
                self.given_back,
            )
        return self.assigning(exported)

    def assigning(self, exported: Exported) -> Exported:
        """With the buffers that the forward gives another tensor: export shows them as changed."""
        accesses = {weight_access(self.module, name) for name in self.assigned}
        updates = tuple(
            replace(each, assigned=each.buffer in accesses) for each in exported.graph.updates
        )
        return replace(exported, graph=replace(exported.graph, updates=updates))


@dataclass(frozen=True, slots=True)
class InMode:
    """The module in one mode: its graph, the axes of dynamic size, what was read, and the training
    flags of its submodules. `fixed` says why the axes that were asked for are not dynamic.
    """

    task: Task
    exported: Exported
    dynamic: Axes
    reads: Reads
    flags: Mapping[str, bool]
    fixed: str = ""

    @property
    def readers(self) -> frozenset[str]:
        """The submodules whose training flag was read."""
        return self.reads.mode_readers()


def batched_inputs(arguments: Arguments) -> Axes:
    """The axes that may be the batch: those of the most common leading size of at least 2."""
    sizes = {t.access: t.value.shape[0] for t in arguments.tensors if t.value.dim()}
    counts = Counter(size for size in sizes.values() if size >= 2)
    if not counts:
        return _NO_AXES
    most = max(counts.values())
    common = next(size for size in sizes.values() if counts[size] == most)
    return frozenset((access, 0) for access, size in sizes.items() if size == common)


def asked_axes(arguments: Arguments, asked: Iterable[tuple[str, int]]) -> Axes:
    """The axes that the user says are dynamic. Raises UserError for one that does not exist."""
    ranks = {t.access: t.value.dim() for t in arguments.tensors}
    for access, axis in asked:
        if access not in ranks:
            sentence = f"no input that is a tensor is called {access}"
            raise UserError(sentence, next_step=f"use one of {', '.join(ranks)}")
        if not 0 <= axis < ranks[access]:
            raise UserError(f"{access} has axes 0 to {ranks[access] - 1}, and no axis {axis}")
    return frozenset(asked)


def widest(task: Task, candidates: Axes) -> tuple[Exported, Axes, str]:
    """With symbolic sizes of these axes if export proves the graph for a range of them, fixed if
    not; without those that were asked for only where it does not with them, with the reason.
    """
    asked, reason = candidates & asked_axes(task.arguments, task.needs.dynamic), ""
    for axes in dict.fromkeys((candidates, asked, candidates - asked)):
        try:
            exported = task.export(axes) if axes else None
            if exported is not None and exported.bounds:
                return exported, _dynamic(exported.graph), _fixed(asked, exported.graph, reason)
        except (CaptureError, NeedsFixedSizes) as error:
            reason = reason or str(
                error
            )  # what sizes do not cause is told with those of the example
    exported = task.export(_NO_AXES)
    return exported, _NO_AXES, _fixed(asked, exported.graph, reason)


def _fixed(asked: Axes, graph: Graph, reason: str) -> str:
    """Why some of the axes that were asked for have one size, "" where none has."""
    missing = asked - _dynamic(graph)
    return (reason or "the forward needs the size of the example") if missing else ""


def _dynamic(graph: Graph) -> Axes:
    """The axes whose sizes export kept symbolic."""
    return frozenset(
        (node.attrs.access, axis)
        for node in graph.inputs
        for axis, size in enumerate(node.type.shape)
        if isinstance(size, Expr)
    )
