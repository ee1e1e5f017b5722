"""The training level: whether ModelNew learns as the original does.

The original in float64, the original as it is and ModelNew are trained side by side, from the same
weights and on the same inputs, with an optimizer and a loss of the judge's. What counts is how far
a curve of losses is from that of float64, against how far eager's is.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from opweld.judge.inputs.kinds import Own, resized
from opweld.judge.load import NEW, ORIGINAL, Call, Pair, build_original, leading_size
from opweld.judge.numerics.effective import Lowered, Lowering, allowed_in
from opweld.judge.numerics.precision import FLOAT64, NoReference
from opweld.judge.process.memory import available_bytes
from opweld.judge.process.protocol import Raised
from opweld.judge.training.distances import NUM_BATCHES, STILL, Distances, Outcome, concluded
from opweld.judge.training.lesson import Lesson
from opweld.judge.training.objective import Objective
from opweld.judge.training.rates import share_for, unit_rates
from opweld.judge.training.trainees import (
    Candidate,
    Local,
    NotTrained,
    Start,
    Trainee,
    Unlike,
    Weights,
    first_names,
    trained_of,
)
from opweld.judge.values import FLOAT64_RUN, LOSS_CURVES, Check
from opweld.judge.verify.run import run
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.trial import Phase
from opweld.judge.verify.weights import copy_state, load_state, state_restored

NUM_SEEDS = 5
# Of seeds: each has to fail. By one, a right rewrite of a model with a thousand ReLUs fails in 15 %
# of the cases, by two in 2 %.
_NUM_GROUPS = 3
_LEAST_ROWS, _LEAST_STEPS, _TIMED_STEPS = 5, 4, 3
# Weight and momentum of five sides in float64, the model in it, gradients, states on their way.
_BYTES_OF_A_WEIGHT = 160
# What the choice of a rate may take of the time.
_SHARE_OF_RATES = 0.2
# The sides beside FLOAT64_RUN, ModelNew and STILL.
EAGER, MOVED, LOWERED = "eager", "moved", "lowered"


@dataclass(frozen=True, slots=True)
class Asked:
    """How long to train: so many steps, or as many as fit in so many seconds."""

    num_steps: int
    seconds: float


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
        self._num_steps, self._share = 0, 0.0
        self._reference = FLOAT64_RUN

    def check(self, asked: Asked) -> Outcome:
        """On five seeds, and on others, up to twice, where chance may have made it fail."""
        state = copy_state(self._pair.original)
        self._num_steps = asked.num_steps
        try:
            outcome = self._tried(asked, 0)
            for group in range(1, _NUM_GROUPS):
                if not outcome.is_close:
                    break
                outcome = self._tried(asked, group * NUM_SEEDS)
            return outcome
        except NotTrained as reason:
            return Outcome(Check(LOSS_CURVES, True, str(reason), skipped=True))
        except (Raised, Unlike) as error:
            says_who = isinstance(error, Raised) and not error.without_gradients
            clause = str(error) if says_who else f"ModelNew: {error}"
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
        rates = self._rates(lesson, models, asked.seconds * _SHARE_OF_RATES)
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
        weights, of_inputs = trained_of(pair.original, self._own(number * NUM_BATCHES))
        if not weights:
            raise NotTrained("neither parameters nor floating-point inputs to be trained")
        require_memory(sum(w.numel() for w in weights.values()), available_bytes(pair.device))
        return Start(state, weights, of_inputs)

    def _lesson(self, number: int, start: Start, models: Mapping[str, nn.Module]) -> Lesson:
        """Raises:
        NotTrained: the original has nothing to learn, or does not run so.
        """
        seed = stream(self._seed, number)
        count = 1 if start.of_inputs else NUM_BATCHES
        calls = tuple(
            self._own(number * NUM_BATCHES + each).map(torch.clone) for each in range(count)
        )
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
        """The outputs of each batch before any step, by the reference: float64, or eager where that
        does not run, or draws other random numbers.
        """
        if self._reference == FLOAT64_RUN:
            side = self._local(models, lesson.start)
            with contextlib.suppress(NoReference):
                found = self._outputs(lesson, side)
                if not side.draws_random:
                    return found
            self._reference = EAGER
        return self._outputs(lesson, self._local(models, lesson.start))

    def _outputs(self, lesson: Lesson, side: Local) -> list[tuple[int, list[Tensor]]]:
        """Raises:
        NoReference, NotTrained: the side has no outputs, or they have no gradients.
        """
        calls = enumerate(lesson.calls)
        found = [(number, side.forward(call, lesson.seed_of(number))) for number, call in calls]
        side.backward([torch.ones_like(t) if t.requires_grad else None for t in found[-1][1]])
        return found

    def _rates(
        self, lesson: Lesson, models: Mapping[str, nn.Module], seconds: float
    ) -> dict[str, float]:
        """For each weight: all move by the same share of their size at first, which is chosen for
        the first seed.
        """

        def side() -> Local:
            return self._local(models, lesson.start)

        units = unit_rates(lesson.start.weights, lesson.slopes(side()))
        deadline = time.monotonic() + seconds
        self._share = self._share or share_for(lesson, side, units, deadline)
        return {name: self._share * unit for name, unit in units.items()}

    def _local(self, models: Mapping[str, nn.Module], start: Start) -> Local:
        """The reference."""
        return Local(models[self._reference], start, exact=self._reference == FLOAT64_RUN)

    def _sides(self, lesson: Lesson, models: Mapping[str, nn.Module]) -> dict[str, Trainee]:
        """All of them with the weights at first, the reference among them; ModelNew is the last."""
        start, original = lesson.start, models[EAGER]
        moved = moved_by_rounding(start, lesson.calls[0], stream(lesson.seed, "moved"))
        eager = Local(original, start)
        sides: dict[str, Trainee] = {EAGER: eager, MOVED: Local(original, start, moved)}
        if self._reference == FLOAT64_RUN:
            sides[FLOAT64_RUN] = self._local(models, start)
        for number, lowering in enumerate(self._lowerings):
            under = functools.partial(Lowered, lowering)
            sides[f"{LOWERED} {number}"] = Local(original, start, under=under)
        call = lesson.calls[0].map(torch.clone)
        like = run(original, call, lesson.seed_of(0), grad=True, watch_state=True)
        load_state(original, start.state)
        names = first_names(original, start.weights)
        sides[NEW] = Candidate(self._pair.new, start, names, like, eager)
        return sides


def few_rows(own: Own, model: nn.Module, max_elems: int) -> Own:
    """The inputs with as many rows as stay within so many elements, where the model takes them."""
    call = own(0)
    size, elems = leading_size(call) or 0, sum(t.numel() for t in call.tensors())
    rows = max(_LEAST_ROWS, size * max_elems // max(elems, 1))
    few = resized(own, rows)
    if rows >= size or not _runs(model, few(0)):
        return own
    return few


def _runs(model: nn.Module, call: Call) -> bool:
    with torch.no_grad(), state_restored(model), contextlib.suppress(Exception):
        model(*call.args, **call.kwargs)
        return True
    return False


def require_memory(num_weights: int, free_bytes: int) -> None:
    """Raises:
    NotTrained: the weights of all sides would take more than half of what is free.
    """
    if num_weights * _BYTES_OF_A_WEIGHT > free_bytes // 2:
        raise NotTrained(
            f"{num_weights / 1e6:.0f} million weights, five times, take too much memory"
        )


def fitting(asked: Asked, step_s: float) -> int:
    """How many steps of each seed there is time for.

    Raises:
        NotTrained: too few.
    """
    steps = int(asked.seconds / (NUM_SEEDS * step_s))
    if steps < min(_LEAST_STEPS, asked.num_steps):
        raise NotTrained(
            f"{_LEAST_STEPS} steps of {NUM_SEEDS} seeds take longer than {asked.seconds:.0f} s"
        )
    return min(steps, asked.num_steps)


def moved_by_rounding(start: Start, call: Call, seed: int) -> Weights:
    """The weights with each element moved by up to half an ulp of its own dtype."""
    generator = torch.Generator().manual_seed(seed)
    given = dict(enumerate(call.tensors()))

    def move(name: str, weight: Tensor) -> Tensor:
        own = given[int(name.split()[1])] if start.of_inputs else start.state[name]
        drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float64) - 0.5
        return weight * (1.0 + torch.finfo(own.dtype).eps * drawn.to(weight.device))

    return {name: move(name, weight) for name, weight in start.weights.items()}
