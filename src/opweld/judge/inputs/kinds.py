"""The inputs that a pair is tried on, all made from the model's own.

Here integers, booleans, sizes and scalars stay the model's own; what varies is the values of
floating-point tensors, and how a call is made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from opweld.judge.inputs import distributions
from opweld.judge.inputs.distributions import Fill
from opweld.judge.load import Call, Pair, leading_size, make_inputs
from opweld.judge.numerics.compare import SMALL_ELEMS
from opweld.judge.numerics.outputs import is_float
from opweld.judge.process.memory import available_bytes
from opweld.judge.sparse import with_stored
from opweld.judge.values import Check
from opweld.judge.verify.seeds import stream

Own = Callable[[int], Call]

LARGEST = "the largest number"
SWAPPED = "two elements swapped"
# What is kept by a sample of the elements shows where both that change places are outside of it.
NUM_SWAPS = 6
CONSTANT_ROWS, ONE_HUGE, LARGE = "constant rows", "one huge element", "large values"
SPECIAL, INFINITE_ROWS = "NaN, infinities, signed zeros", "rows of infinities"
# What the first floating-point tensor is filled with, and the others.
VALUES: dict[str, tuple[Fill, Fill]] = {
    "normal values": (distributions.normal, distributions.normal),
    "positive values": (distributions.positive, distributions.positive),
    LARGE: (distributions.large, distributions.large),
    "tiny values": (distributions.tiny, distributions.tiny),
    "sparse values": (distributions.sparse, distributions.sparse),
    CONSTANT_ROWS: (distributions.constant_rows, distributions.normal),
    ONE_HUGE: (distributions.one_huge, distributions.normal),
    LARGEST: (distributions.one_largest, distributions.normal),
    SPECIAL: (distributions.special, distributions.special),
    INFINITE_ROWS: (distributions.infinite_rows, distributions.normal),
}
# There the answer may be a difference of equal numbers, which rounding alone decides.
ILL_CONDITIONED = frozenset((CONSTANT_ROWS, ONE_HUGE))
NOT_FINITE = frozenset((SPECIAL, INFINITE_ROWS))
ORDINARY = frozenset(("normal values", "positive values", LARGE, "tiny values"))
# Of the root mean square, where one row decides the maximum.
_MARGIN = 4.0
# What the inputs kept for another call may take of the memory that is free.
_CACHE_SHARE = 16


@dataclass(frozen=True, slots=True)
class Manner:
    """How ModelNew is called.

    On tensors that it has seen with other values, on another stream, with the memory around its
    inputs and results watched, with the parameter of a name in the place of an input.
    """

    same_memory: bool = False
    stream: str = ""
    guarded: bool = False
    weight: str = ""


PLAIN = Manner()


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to make inputs: `make(draw)` gives the same values for the same draw.

    With `ill_conditioned`, what one ulp of the inputs changes in the original is allowed too;
    with `names_precision`, an error there tells in which format it was made; with `may_refuse`, an
    exception of ModelNew is noted and no failure; with `coarse`, results may be of another
    floating-point dtype, and what assert_close accepts of the coarser one will do. `near_one` makes
    the same with finite numbers near one, for an original whose products overflow by their order.
    """

    name: str
    make: Own
    note: str = ""
    manner: Manner = PLAIN
    ill_conditioned: bool = False
    names_precision: bool = False
    may_refuse: bool = False
    coarse: bool = False
    near_one: Own | None = None

    def may_tip(self, check: Check) -> bool:
        """Whether an error may be what one ulp of the inputs changes. Of large values that is the
        maximum alone: one row may have two scores of a softmax that are nearly equal.
        """
        ours, eager = check.error_vs_f64, check.eager_error_vs_f64
        if self.name == LARGE and ours and eager:
            return ours.rms <= _MARGIN * eager.rms
        return self.ill_conditioned


class OwnInputs:
    """The model's own inputs by draw, each from its own seed; kept while memory is plentiful.

    The same tensors are handed out again, so whoever lets a model write to them calls `spoil`.
    """

    def __init__(self, pair: Pair, seed: int) -> None:
        self._pair = pair
        self._seed = seed
        self._kept: dict[int, Call] = {}

    def __call__(self, draw: int = 0) -> Call:
        if draw not in self._kept:
            self._make_room()
            pair, seed = self._pair, stream(self._seed, "own inputs", draw)
            self._kept[draw] = make_inputs(
                pair.module, pair.model_path, seed, pair.device, pair.batch
            )
        return self._kept[draw]

    def spoil(self) -> None:
        """Forget all: a model may have written to them."""
        self._kept.clear()

    def _make_room(self) -> None:
        held = sum(t.numel() * t.element_size() for c in self._kept.values() for t in c.tensors())
        if held > available_bytes(self._pair.device) // _CACHE_SHARE:
            self._kept.clear()


def value_kinds(own: Own, seed: int) -> tuple[Kind, ...]:
    """Other values in the floating-point tensors: ordinary, extreme, degenerate, not finite."""
    if not any(is_float(t) for t in own(0).tensors()):
        return ()
    return tuple(
        Kind(
            name,
            _filler(own, seed, name),
            ill_conditioned=name in ILL_CONDITIONED,
            names_precision=name in ORDINARY,
            near_one=_filler(own, seed, name, near_one=True) if name in NOT_FINITE else None,
        )
        for name in VALUES
    )


def resize(call: Call, rows: int) -> Call:
    """`rows` rows, the call's own repeated, in every tensor with the leading size of the first."""
    size = leading_size(call)
    if size is None:
        return call

    def change(t: Tensor) -> Tensor:
        if not t.dim() or t.shape[0] != size:
            return t.clone()
        return t.index_select(0, torch.arange(rows, device=t.device) % size)

    return call.map(change)


def move_by_ulp(t: Tensor, number: int = 0) -> Tensor:
    """Every element one ulp (eps, relatively) up or down, in turns of an irregular pattern, another
    for each `number`.
    """
    if not is_float(t) or t.numel() == 0:
        return t
    generator = torch.Generator(t.device).manual_seed(t.numel() + (number << 40))

    def move(values: Tensor) -> Tensor:
        drawn = torch.randint(0, 2, values.shape, generator=generator, device=t.device)
        return values * (1 + drawn.mul_(2).sub_(1).to(t.dtype) * torch.finfo(t.dtype).eps)

    return with_stored(t, move)


def rescaled(own: Own, factor: float) -> Own:
    """The own inputs with every floating-point element times a factor."""
    return lambda draw: own(draw).map(lambda t: t * factor if is_float(t) else t.clone())


def resized(own: Own, rows: int) -> Own:
    """The own inputs with `rows` rows; each draw is made once, and copies are handed out."""
    kept: dict[int, Call] = {}

    def make(draw: int) -> Call:
        if draw not in kept:
            kept[draw] = resize(own(draw), rows)
        return kept[draw].map(torch.clone)

    return make


def swapped(own: Own, seed: int) -> Own:
    """The first own inputs with two elements of each floating-point tensor in each other's place,
    others in each draw.

    Results that were kept by some of the elements, or by their sum, are then another call's. After
    `NUM_SWAPS` draws it is other own inputs that are changed: more of the first have no new errors.
    """

    def make(draw: int) -> Call:
        random = Random(stream(seed, SWAPPED, draw))
        call = own(0 if draw < NUM_SWAPS else draw)
        return call.map(lambda t: with_stored(t, lambda values: _swap(values, random)))

    return make


def _swap(t: Tensor, random: Random) -> Tensor:
    t = t.clone()
    if not is_float(t) or t.numel() < 2:
        return t
    one, other = (_position(t, n) for n in random.sample(range(t.numel()), 2))
    kept = t[one].clone()
    t[one] = t[other]
    t[other] = kept
    return t


def _position(t: Tensor, number: int) -> tuple[int, ...]:
    """The index of an element by its number in row-major order."""
    index: list[int] = []
    for size in reversed(t.shape):
        number, step = divmod(number, size)
        index.insert(0, step)
    return tuple(index)


def _filler(own: Own, seed: int, name: str, near_one: bool = False) -> Own:
    """Random numbers of that name in place of floating-point values, in a stream of their own."""
    fills = tuple(map(distributions.near_one, VALUES[name])) if near_one else VALUES[name]

    def make(draw: int) -> Call:
        call = own(draw)
        devices = {_made_on(t) for t in call.tensors()}
        generators = {d: torch.Generator(d).manual_seed(stream(seed, name, draw)) for d in devices}
        first, others = fills
        changes = itertools.chain([first], itertools.repeat(others))

        def fill(t: Tensor) -> Tensor:
            if not is_float(t):
                return t.clone()
            generator, change = generators[_made_on(t)], next(changes)

            def drawn(values: Tensor) -> Tensor:
                normal = torch.empty(values.shape, dtype=t.dtype, device=generator.device)
                return change(normal.normal_(generator=generator), generator).to(t.device)

            return with_stored(t, drawn)

        return call.map(fill)

    return make


def _made_on(t: Tensor) -> torch.device:
    """The CPU for small tensors: to load what makes them on a GPU takes longer than to copy."""
    return torch.device("cpu") if t.numel() <= SMALL_ELEMS else t.device
