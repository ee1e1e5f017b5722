"""The training level: whether ModelNew learns as the original does.

The original in float64, the original as it is and ModelNew are trained side by side, from the same
weights and on the same inputs, with an optimizer and a loss of the judge's. What counts is how far
a curve of losses is from that of float64, against how far eager's is.
"""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from opweld.judge.inputs.kinds import Own
from opweld.judge.load import NEW, ORIGINAL, Call, Pair, brief, build_original
from opweld.judge.numerics.effective import Lowered, Lowering, allowed_in
from opweld.judge.numerics.precision import FLOAT64, NoReference
from opweld.judge.process.protocol import Raised
from opweld.judge.training.objective import Objective
from opweld.judge.training.trainees import (
    Candidate,
    Local,
    Start,
    Trainee,
    Unlike,
    Weights,
    first_names,
    trained_of,
)
from opweld.judge.values import FLOAT64_RUN, LOSS_CURVES, Check, LossCurves
from opweld.judge.verify.run import run
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.trial import Phase
from opweld.judge.verify.weights import copy_state, load_state

NUM_SEEDS = 5
# The median distance from the curve of float64 that is allowed, over eager's.
ALLOWED = 1.5
# A single seed may be so much farther away than any of eager's; and a median beyond this is no
# chance, so that no other seeds are tried.
FAR = 10.0
# What no distance counts below, in roundings of float64 to the first loss: a model in float64 may
# part from itself by these.
FLOOR_ULPS = 16.0
# Batches that are learnt in turns.
_POOL = 4
# Of its size a weight moves so much in the first step; less where the loss then does not fall.
_FIRST_RATE, _SLOWER, _NUM_RATES, _TRIED_STEPS = 1e-3, 0.25, 6, 20
# Gradients of weights that hardly matter are roundings: they count as this share of the largest.
_LEAST_PULL = 1e-3
_LEAST_STEPS, _TIMED_STEPS = 4, 3
# What the choice of a rate may take of the time.
_SHARE_OF_RATES = 0.2
# The sides, beside FLOAT64_RUN and ModelNew; STILL are weights that nothing changes.
EAGER, MOVED, LOWERED, STILL = "eager", "moved", "lowered", "still"


@dataclass(frozen=True, slots=True)
class Asked:
    """How long to train: so many steps, or as many as fit in so many seconds."""

    num_steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The check, and the figures where there are any."""

    check: Check
    curves: LossCurves | None = None

    @property
    def is_close(self) -> bool:
        """Whether it fails by no more than what chance may do."""
        return not self.check.passed and self.curves is not None and self.curves.ratio <= FAR


class NotTrained(Exception):
    """There is nothing to be compared; the message says why."""


@dataclass(slots=True)
class Distances:
    """Of one seed: sums of squared distances from the reference's losses, by side."""

    squares: dict[str, float] = field(default_factory=dict)
    count: int = 0
    first: float = 0.0
    last: float = 0.0

    def add(self, losses: Mapping[str, Tensor], reference: str) -> None:
        """The losses of the parts, float64 of shape [parts], of each side at one step."""
        exact = losses[reference]
        for name, each in losses.items():
            square = float((each - exact).square().sum())
            self.squares[name] = self.squares.get(name, 0.0) + square
        self.last = float(exact.mean())
        self.first = self.first if self.count else self.last
        self.count += exact.numel()

    def of(self, name: str) -> float:
        """The root mean square; what is not finite is infinitely far."""
        found = math.sqrt(self.squares[name] / self.count)
        return found if math.isfinite(found) else math.inf


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one seed trains: the weights at first, the batches, and how each is learnt from.

    `still` are the losses of each batch for weights that stay what they are.
    """

    seed: int
    start: Start
    calls: tuple[Call, ...]
    objectives: tuple[Objective, ...]
    still: tuple[Tensor, ...]

    def step(self, side: Trainee, number: int, rates: Mapping[str, float]) -> Tensor:
        """Has a side make a step; the losses before it."""
        at = number % len(self.calls)
        losses, given = self.objectives[at](side.forward(self.calls[at], self.seed_of(number)))
        gradients, factor = side.backward(given), self.objectives[at].factor
        side.learn({name: g / factor for name, g in gradients.items()}, rates)
        return losses

    def seed_of(self, number: int) -> int:
        """Of the random numbers that a forward draws."""
        return stream(self.seed, "step", number)


class Training:
    """Trains the sides of a pair in the mode that they are in, and leaves both as they were.

    `own` makes the inputs, `lowering` is what `--precision` accepts beside eager.
    """

    def __init__(
        self, pair: Pair, own: Own, seed: int, phase: Phase, lowering: Lowering | None = None
    ) -> None:
        self._pair, self._own, self._phase = pair, own, phase
        self._seed = stream(seed, "training")
        self._lowerings = [each for each in (lowering, allowed_in(pair.device)) if each]
        self._num_steps, self._rate = 0, 0.0
        self._reference = FLOAT64_RUN

    def check(self, asked: Asked) -> Outcome:
        """On five seeds, and on five others where chance may have decided."""
        state = copy_state(self._pair.original)
        self._num_steps = asked.num_steps
        try:
            outcome = self._tried(asked, 0)
            if outcome.is_close:
                outcome = self._tried(asked, NUM_SEEDS)
            return outcome
        except NotTrained as reason:
            return Outcome(Check(LOSS_CURVES, True, str(reason), skipped=True))
        except (Raised, Unlike) as error:
            clause = str(error) if isinstance(error, Raised) else f"ModelNew: {error}"
            return Outcome(Check(LOSS_CURVES, False, clause))
        finally:
            load_state(self._pair.original, state)
            with contextlib.suppress(Raised):
                self._pair.new.load_state(state)

    def _tried(self, asked: Asked, first: int) -> Outcome:
        found = [self._one_seed(first + number, asked) for number in range(NUM_SEEDS)]
        return concluded(found, self._reference, self._num_steps, asked.num_steps)

    def _one_seed(self, number: int, asked: Asked) -> Distances:
        self._phase(ORIGINAL, LOSS_CURVES)
        start = self._start(number)
        models = {EAGER: self._pair.original, FLOAT64_RUN: FLOAT64.model(self._pair.original)}
        lesson = self._lesson(number, start, models)
        rates = self._rates(lesson, models, asked)
        sides, found = self._sides(lesson, models), Distances()
        began, step = time.monotonic(), 0
        while step < self._num_steps:
            losses = {STILL: lesson.still[step % len(lesson.calls)]}
            for name, side in sides.items():
                self._phase(NEW if name == NEW else ORIGINAL, LOSS_CURVES)
                losses[name] = lesson.step(side, step, rates)
            found.add(losses, self._reference)
            step += 1
            if number == 0 and step == _TIMED_STEPS:
                self._num_steps = fitting(asked, (time.monotonic() - began) / step)
        return found

    def _start(self, number: int) -> Start:
        """The original in the state that its constructor gives it from a seed of its own."""
        pair, seed = self._pair, stream(self._seed, "parameters", number)
        drawn = build_original(pair.module, pair.model_path, seed, pair.device, pair.mode)
        state = copy_state(drawn)
        load_state(pair.original, state)
        weights, of_inputs = trained_of(pair.original, self._own(number * _POOL))
        if not weights:
            raise NotTrained("neither parameters nor floating-point inputs to be trained")
        return Start(state, weights, of_inputs)

    def _lesson(self, number: int, start: Start, models: Mapping[str, nn.Module]) -> Lesson:
        """Raises:
        NotTrained: the original has nothing to learn, or does not run so.
        """
        seed = stream(self._seed, number)
        count = 1 if start.of_inputs else _POOL
        calls = tuple(self._own(number * _POOL + each).map(torch.clone) for each in range(count))
        lesson = Lesson(seed, start, calls, (), ())
        outputs = self._before(lesson, models)
        objectives = [Objective.beside(each, stream(seed, "targets", n)) for n, each in outputs]
        if not all(objectives):
            raise NotTrained("no output of the original is a floating-point tensor with gradients")
        learnt = tuple(each for each in objectives if each)
        pairs = zip(learnt, outputs, strict=True)
        still = tuple(objective(each)[0] for objective, (_, each) in pairs)
        return replace(lesson, objectives=learnt, still=still)

    def _before(
        self, lesson: Lesson, models: Mapping[str, nn.Module]
    ) -> list[tuple[int, list[Tensor]]]:
        """The outputs of each batch before any step, by the reference; eager is that where float64
        does not run, or draws other random numbers.
        """
        while True:
            exact = self._reference == FLOAT64_RUN
            side = Local(models[self._reference], lesson.start, exact=exact)
            try:
                found = [
                    (number, side.forward(call, lesson.seed_of(number)))
                    for number, call in enumerate(lesson.calls)
                ]
            except NoReference:
                self._reference = EAGER
                continue
            except Exception as error:
                raise NotTrained(f"the original is not trained: {brief(error, 160)}") from error
            if not (exact and side.draws_random):
                return found
            self._reference = EAGER

    def _rates(
        self, lesson: Lesson, models: Mapping[str, nn.Module], asked: Asked
    ) -> dict[str, float]:
        """The optimizer's rate for each weight: all move by the same share of their size at first,
        by which the loss falls. Later seeds have the share of the first.
        """
        exact = self._reference == FLOAT64_RUN

        def side() -> Local:
            return Local(models[self._reference], lesson.start, exact=exact)

        once = side()
        losses, given = lesson.objectives[0](once.forward(lesson.calls[0], lesson.seed_of(0)))
        factor = lesson.objectives[0].factor
        slopes = {name: g / factor for name, g in once.backward(given).items()}
        units = unit_rates(lesson.start.weights, slopes)
        deadline = time.monotonic() + asked.seconds * _SHARE_OF_RATES
        share = self._rate or _FIRST_RATE
        for _ in range(0 if self._rate else _NUM_RATES):
            rates = {name: share * unit for name, unit in units.items()}
            if self._falls(lesson, side(), rates, deadline):
                break
            share *= _SLOWER
        self._rate = share
        return {name: share * unit for name, unit in units.items()}

    def _falls(
        self, lesson: Lesson, side: Local, rates: Mapping[str, float], deadline: float
    ) -> bool:
        """Whether some steps bring the loss down, and never far up. There are no more of them than
        there is time for; without any, the rates have to do.
        """
        most, losses = 1.5 * max(float(each.mean()) for each in lesson.still), []
        for step in range(min(_TRIED_STEPS, self._num_steps)):
            if time.monotonic() > deadline:
                break
            losses.append(float(lesson.step(side, step, rates).mean()))
            if not losses[-1] <= most:
                return False
        half = len(losses) // 2
        return half == 0 or statistics.mean(losses[half:]) <= statistics.mean(losses[:half])

    def _sides(self, lesson: Lesson, models: Mapping[str, nn.Module]) -> dict[str, Trainee]:
        """All of them with the weights at first, the reference among them; ModelNew is the last."""
        start, original = lesson.start, models[EAGER]
        moved = moved_by_rounding(start, lesson.calls[0], stream(lesson.seed, "moved"))
        eager = Local(original, start)
        sides: dict[str, Trainee] = {EAGER: eager, MOVED: Local(original, start, moved)}
        if self._reference == FLOAT64_RUN:
            sides[FLOAT64_RUN] = Local(models[FLOAT64_RUN], start, exact=True)
        for number, lowering in enumerate(self._lowerings):
            under = functools.partial(Lowered, lowering)
            sides[f"{LOWERED} {number}"] = Local(original, start, under=under)
        call = lesson.calls[0].map(torch.clone)
        like = run(original, call, lesson.seed_of(0), grad=True, watch_state=True)
        load_state(original, start.state)
        names = first_names(original, start.weights)
        sides[NEW] = Candidate(self._pair.new, start, names, like, eager)
        return sides


def concluded(
    found: Sequence[Distances], reference: str, num_steps: int, asked_steps: int
) -> Outcome:
    """The median of all seeds against that of eager, or of eager from weights that are others by
    roundings, whichever is farther.

    Raises:
        NotTrained: what learns nothing would pass.
    """
    first, last = (
        statistics.median(t) for t in zip(*((d.first, d.last) for d in found), strict=True)
    )
    floor = FLOOR_ULPS * torch.finfo(torch.float64).eps * first
    standards = [n for n in found[0].squares if n not in (NEW, STILL, reference)]

    def middle(name: str) -> float:
        return statistics.median(d.of(name) for d in found)

    allowed = max(floor, *map(middle, standards))
    farthest = max(floor, *(d.of(name) for d in found for name in standards))
    new, worst = middle(NEW), max(d.of(NEW) for d in found)
    if math.isinf(allowed):
        raise NotTrained("the original's own loss is not finite")
    curves = LossCurves(
        len(found), num_steps, asked_steps, reference, first, last, new, allowed, new / allowed
    )
    told = curves.describe()
    if new > ALLOWED * allowed or worst > FAR * farthest:
        of_worst = f", {worst:.2g} in the worst seed" if worst > FAR * farthest else ""
        return Outcome(
            Check(LOSS_CURVES, False, f"ModelNew learns otherwise: {told}{of_worst}"), curves
        )
    if (still := middle(STILL)) <= ALLOWED * allowed:
        raise NotTrained(
            f"what learns nothing would pass, {still:.2g} from {reference}'s losses;"
            f" eager is {allowed:.2g}"
        )
    return Outcome(Check(LOSS_CURVES, True, told), curves)


def fitting(asked: Asked, step_s: float) -> int:
    """How many steps of each seed there is time for.

    Raises:
        NotTrained: too few.
    """
    steps = int(asked.seconds / (NUM_SEEDS * step_s))
    if steps < min(_LEAST_STEPS, asked.num_steps):
        raise NotTrained(
            f"no time for {_LEAST_STEPS} steps of {NUM_SEEDS} seeds: {step_s:.2g} s each"
        )
    return min(steps, asked.num_steps)


def unit_rates(weights: Weights, slopes: Mapping[str, Tensor]) -> dict[str, float]:
    """Rates by which each weight moves by its own size, root mean squares both, in one step.

    Raises:
        NotTrained: no weight has a slope.
    """
    rms = {name: float(w.square().mean().sqrt()) for name, w in weights.items() if w.numel()}
    largest = max(rms.values(), default=0.0) or 1.0
    sizes = {name: rms.get(name) or 0.1 * largest for name in weights}
    steep = {n: float(slopes[n].square().mean().sqrt()) if n in slopes else 0.0 for n in rms}
    pulls = {name: steep[name] * sizes[name] * weights[name].numel() for name in steep}
    most = max(pulls.values(), default=0.0)
    if not 0.0 < most < math.inf:
        raise NotTrained("the loss of the original has no slope")
    least = {n: _LEAST_PULL * most / (sizes[n] * weights[n].numel()) for n in steep}
    return {n: sizes[n] / max(steep[n], least[n]) if n in steep else 0.0 for n in weights}


def moved_by_rounding(start: Start, call: Call, seed: int) -> Weights:
    """The weights with each element moved by up to half an ulp of its own dtype."""
    generator = torch.Generator().manual_seed(seed)
    given = dict(enumerate(call.tensors()))

    def move(name: str, weight: Tensor) -> Tensor:
        own = given[int(name.split()[1])] if start.of_inputs else start.state[name]
        drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float64) - 0.5
        return weight * (1.0 + torch.finfo(own.dtype).eps * drawn.to(weight.device))

    return {name: move(name, weight) for name, weight in start.weights.items()}
