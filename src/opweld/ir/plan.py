"""The plan: which nodes share a kernel, and how each one runs."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .expr import Size
from .graph import Graph, Node


class GroupKind(enum.Enum):
    POINTWISE = "pointwise"
    LIBRARY = "library"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class PointwiseSchedule:
    """`lanes` elements an access, `vectors` accesses in flight a thread, `threads` a block.

    lanes == 1 means that the innermost axis does not allow vectors.
    """

    lanes: int
    vectors: int
    threads: int

    def __str__(self) -> str:
        return f"lanes {self.lanes} vectors {self.vectors} threads {self.threads}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes that must move (each operand read once, each result written once) and operations."""

    bytes: Size
    flops: Size
    limit: str


@dataclass(frozen=True, slots=True)
class Group:
    """One future kernel, one PyTorch call, or one view.

    `nodes` are in topological order; `inputs` are the values read from memory (sources or results
    of earlier groups), `outputs` the values written. `reason` is one sentence for the reader of the
    plan. `reuse` is the position in `inputs` of an intermediate that nobody reads later and whose
    buffer the first output may take, or None.
    """

    name: str
    kind: GroupKind
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    schedule: PointwiseSchedule | None
    estimate: Estimate
    reason: str
    reuse: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups in the order in which they run."""

    graph: Graph
    target: str
    groups: tuple[Group, ...]
