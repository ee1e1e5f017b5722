"""A loop as one node: a call whose body, a graph of its own, is made once a turn."""

from __future__ import annotations

from dataclasses import dataclass

from .attrs import CallAttrs, Operand
from .graph import Arena, Graph, Node
from .types import TensorType

TARGET = "opweld.loop"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a turn takes of a tensor: the element `first + turn * step` along `axis`, which the part
    has not; or, where `length` is not 0, so many elements from there.
    """

    axis: int
    first: int
    step: int
    length: int = 0


@dataclass(frozen=True, slots=True)
class Collected:
    """A result of each turn, joined along `axis`: a new one where they are `stacked`. `backwards`
    the last turn's is the first.
    """

    output: int
    axis: int
    stacked: bool
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Loop:
    """The body is a graph whose inputs are, in this order, the values carried from turn to turn,
    parts of tensors, and values that are the same in each turn, as its weights are. Its outputs
    begin with the carried values for the next turn.

    The operands of the node are those of the inputs, then the weights: before the first turn, the
    tensors that `parts` are of, and the rest. Its results are what is `collected`, then the
    carried values `last` that are read behind the loop. `label` ends the names of its kernels.
    """

    label: str
    body: Graph
    turns: int
    carried: int
    parts: tuple[Parts, ...]
    collected: tuple[Collected, ...]
    last: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Loop({self.label!r}, {self.turns} turns)"


def loop_of(node: Node) -> Loop | None:
    """The loop that a node is."""
    loop = node.attrs.loop if isinstance(node.attrs, CallAttrs) else None
    return loop if isinstance(loop, Loop) else None


def make_loop(
    arena: Arena, operands: tuple[Node, ...], loop: Loop, results: tuple[TensorType, ...]
) -> Node:
    """The node of a loop."""
    given = tuple(Operand(place) for place in range(len(operands)))
    body = [node.attrs for node in loop.body.nodes() if isinstance(node.attrs, CallAttrs)]
    attrs = CallAttrs(
        TARGET,
        given,
        (),
        results,
        f"a loop of {loop.turns} turns: its body is fused once",
        draws=any(call.draws for call in body),
        loop=loop,
    )
    return arena.call(operands, attrs)
