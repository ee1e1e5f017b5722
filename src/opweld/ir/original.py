"""What the emitted file is made from beside its kernels: the original, and one part a variant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .contract import Variant
from .graph import Graph, Node
from .kernels.reduction import Lowered
from .plan import Plan


@dataclass(frozen=True, slots=True)
class Original:
    """Where the original class comes from.

    `source` is the text of the model file, kept whole in the emitted file; where it is None the
    class is imported from `module`, the name under which capture knew it. `exports` are the names
    that the emitted file gives on.
    """

    file: str
    module: str
    class_name: str
    source: str | None
    exports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One captured forward with its plan and the kernels of its fused groups, in that order.

    Groups of one name in a file are one kernel: those of a second variant carry its name, but for
    those that are equal to one of the first. A forward that is `rewritten` computes other things
    than the original, perhaps by PyTorch's calls alone.
    """

    variant: Variant
    plan: Plan
    kernels: tuple[Lowered, ...]
    rewritten: bool = False

    @property
    def fuses(self) -> bool:
        """Whether it has a kernel of ours."""
        return bool(self.kernels)

    @property
    def runs(self) -> bool:
        """Whether it is what a call runs, rather than the original."""
        return self.fuses or self.rewritten


def forwards_of(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts that are whole forwards, without the bodies of their loops."""
    return tuple(part for part in parts if not part.variant.loop)


def bodies_of(part: Part, parts: Iterable[Part]) -> tuple[Part, ...]:
    """The bodies of the loops of a forward."""
    own = part.variant.guard_suffix, part.variant.autocast
    bodies = (each for each in parts if each.variant.loop)
    return tuple(
        each for each in bodies if (each.variant.guard_suffix, each.variant.autocast) == own
    )


@dataclass(frozen=True, slots=True)
class Vjp:
    """The gradients of a fused group's operands, as a graph.

    The first inputs of `graph` are the gradients of the group's results at `differentiated`. Those
    behind them stand for the operands of the group, in order, and then for the values `kept`: of
    its results, or of what is computed on the way to them. The outputs are the gradients of the
    operands at `places`.
    """

    graph: Graph
    differentiated: tuple[int, ...]
    places: tuple[int, ...]
    kept: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class BackwardPart:
    """The backward of an operator by kernels: `part` has those of the graph of `vjp`. Where this
    reads intermediates, `saving` is the group with these, the `saved`, behind its results. Of
    several kernels under one gradient `saving` has those that leave more than they do otherwise.
    """

    operator: str
    vjp: Vjp
    part: Part
    saving: Part | None = None
    saved: tuple[Node, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.part,) if self.saving is None else (self.part, self.saving)
