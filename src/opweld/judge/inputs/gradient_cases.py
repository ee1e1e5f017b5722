"""What gradients are compared in: the calls and output gradients of each check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from torch import nn

from opweld.judge.inputs.kinds import LARGE, Own, resized, value_kinds
from opweld.judge.load import Call, leading_size
from opweld.judge.numerics.differentiate import EXPANDED, ONE_ROW, TRANSPOSED, Backward
from opweld.judge.values import joined
from opweld.judge.verify.seeds import stream

NAME = "gradients"
OTHER_VALUES, OTHER_BATCH = "gradients on other values", "gradients at another batch"
INPUTS, PARAMETERS = "gradients of the inputs alone", "gradients of the parameters alone"
SOME = "gradients with some parameters frozen"
TWO_CALLS, TWICE = "gradients of two calls", "gradients twice"
LAYOUTS, IN_GRAPH = "gradients from other layouts", "gradients in a graph"
IN_TRAINING, IN_EVAL = "gradients in training mode", "gradients in eval mode"
# A derivative has its value by several formulas of different accuracy, so grade C passes in these.
NAMES = (
    NAME,
    OTHER_VALUES,
    OTHER_BATCH,
    INPUTS,
    PARAMETERS,
    SOME,
    TWO_CALLS,
    TWICE,
    LAYOUTS,
    IN_GRAPH,
    IN_TRAINING,
    IN_EVAL,
)
_VALUES = ("normal values", "positive values", LARGE, "tiny values", "sparse values")
_EVERYTHING = Backward()


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: the forwards that come before any backward, and what is asked for.

    Where it is `extreme`, a gradient that is not finite is skipped, for formulas part there, and
    what one ulp of the inputs changes in the original is allowed. Where ModelNew `may_refuse`, an
    exception, and outputs without gradients, are noted.
    """

    name: str
    calls: tuple[Call, ...]
    how: Backward = _EVERYTHING
    note: str = ""
    extreme: bool = False
    may_refuse: bool = False


def cases(
    own: Own, model: nn.Module, seed: int, note: str
) -> Iterator[Callable[[], Iterator[Case]]]:
    """What is compared beside the own inputs, in order; each check's cases are made one by one."""
    kinds = [kind for kind in value_kinds(own, stream(seed, NAME)) if kind.name in _VALUES]

    def on_values() -> Iterator[Case]:
        for kind in kinds:
            about = joined(kind.name, note)
            yield Case(OTHER_VALUES, (kind.make(0),), note=about, extreme=True)

    def case(name: str, how: Backward = _EVERYTHING, *more: Call, about: str = note) -> Any:
        return lambda: iter((Case(name, (own(0), *more), how, about),))

    if kinds:
        yield on_values
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    if names:
        yield case(INPUTS, Backward(frozen=tuple(names)))
        yield case(PARAMETERS, Backward(inputs=False))
    if len(names) > 1:
        random = Random(stream(seed, SOME))
        frozen = tuple(random.sample(names, random.randrange(1, len(names))))
        yield case(SOME, Backward(frozen=frozen))
    yield case(TWO_CALLS, _EVERYTHING, own(1))
    yield case(TWICE, Backward(num_passes=2))
    yield lambda: (
        Case(LAYOUTS, (own(0),), Backward(grad_layout=e), note)
        for e in (EXPANDED, ONE_ROW, TRANSPOSED)
    )
    in_graph = Backward(create_graph=True)
    yield lambda: iter((Case(IN_GRAPH, (own(0),), in_graph, note, may_refuse=True),))
    if size := leading_size(own(0)):
        rows = other_size(size, Random(stream(seed, OTHER_BATCH)))
        call = resized(own, rows)(0)
        yield lambda: iter((Case(OTHER_BATCH, (call,), note=f"batch of {rows}"),))


def other_size(size: int, random: Random) -> int:
    """A size from 2 to twice the given one, and not that one."""
    drawn = random.randint(2, max(3, 2 * size))
    return drawn if drawn != size else drawn + 1
