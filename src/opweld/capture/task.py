"""One capture: a module, an example call and a mode, exported for as many sizes as is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from opweld.errors import CaptureError
from opweld.ir.contract import Needs
from opweld.ir.expr import Expr
from opweld.ir.graph import Graph

from .arguments import Arguments
from .exporting.export import Exported, NeedsFixedSizes, export_graph
from .modules.access import weight_access
from .modules.facts import Reads
from .modules.preserve import OWN, unchanged
from .running import mark_averages

_NONE: frozenset[str] = frozenset()


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
        dynamic: frozenset[str],
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
    """The module in one mode: its graph, the inputs of dynamic size, what was read, and the
    training flags of its submodules.
    """

    task: Task
    exported: Exported
    dynamic: frozenset[str]
    reads: Reads
    flags: Mapping[str, bool]

    @property
    def readers(self) -> frozenset[str]:
        """The submodules whose training flag was read."""
        return self.reads.mode_readers()


def batched_inputs(arguments: Arguments) -> frozenset[str]:
    """Inputs whose leading size may be the batch: the most common leading size of at least 2."""
    sizes = {t.access: t.value.shape[0] for t in arguments.tensors if t.value.dim()}
    counts = Counter(size for size in sizes.values() if size >= 2)
    if not counts:
        return _NONE
    most = max(counts.values())
    common = next(size for size in sizes.values() if counts[size] == most)
    return frozenset(access for access, size in sizes.items() if size == common)


def widest(task: Task, candidates: frozenset[str]) -> tuple[Exported, frozenset[str]]:
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
