"""The checks, as a list: what is tried on a pair, in which order.

A check that the original itself does not survive is skipped with the reason; one that only
ModelNew does not survive fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from random import Random

import torch
from torch import nn

from opweld.judge.inputs.arguments import argument_kinds
from opweld.judge.inputs.kinds import (
    NUM_SWAPS,
    SWAPPED,
    Kind,
    Manner,
    Own,
    OwnInputs,
    rescaled,
    resize,
    resized,
    swapped,
    value_kinds,
)
from opweld.judge.inputs.layouts import layout_kinds, sharing_kinds, weight_kinds
from opweld.judge.inputs.sizes import batch_kinds, inner_kinds
from opweld.judge.levels import DEFAULT, Level
from opweld.judge.load import (
    Call,
    Pair,
    is_device_lost,
    leading_size,
)
from opweld.judge.measure.limits import product_flops
from opweld.judge.numerics.effective import ACCEPTED
from opweld.judge.numerics.outputs import bit_equal, snapshot
from opweld.judge.process.protocol import BUSY_STREAM, SIDE_STREAM, Raised
from opweld.judge.sparse import deep_copy
from opweld.judge.tree import leaves
from opweld.judge.values import CALL, FULL, Check
from opweld.judge.verify import aliases, gradients, guards, kept, signature
from opweld.judge.verify.aliases import alias_clause, stride_note
from opweld.judge.verify.degenerate import examine
from opweld.judge.verify.guards import tight_rows
from opweld.judge.verify.other_weights import OtherWeights
from opweld.judge.verify.ranges import asserts_on_device, refusal_on_cpu
from opweld.judge.verify.run import DeviceLost, Run, state_tensors
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.signature import parameters_of, signature_clause
from opweld.judge.verify.states import NOTHING_BESIDE, Beside, States
from opweld.judge.verify.trial import MAX_DRAWS, Phase, Trial
from opweld.judge.verify.weights import compare_state, copy_state

# How often a call that nobody looks at stands before one that is judged, and of how many draws.
_BETWEEN, _DRAWS_BETWEEN = 0.3, 4
DRAWN, RANDOM_STATE = "other weights, re-drawn", "random state"
# What is tried where nothing is asked for.
AUTOCAST, DTYPE = "bfloat16", "float64"
SHARPENED, SHARPENING = "own inputs, sharpened", (30.0, 1 / 30)
MIN_ROWS = 5


class Verifier:
    """Runs the checks on one pair; those that were done stand in `checks`, in order."""

    def __init__(
        self,
        pair: Pair,
        seed: int,
        deadline_s: float,
        phase: Phase,
        checks: list[Check],
        precision: str = "match",
        level: Level = DEFAULT,
        stop_at_first: bool = True,
        beside: Beside = NOTHING_BESIDE,
        scope: str = CALL,
        after_main: Callable[[], None] = lambda: None,
    ) -> None:
        self.pair = pair
        self.seed = seed
        self.checks = checks
        self.device_lost = False
        self.degenerate: str | None = None
        self._level = level
        self._stop_at_first = stop_at_first
        self._strict = scope == FULL
        self._after_main = after_main
        self._beside = beside
        self._own = OwnInputs(pair, seed)
        self._few: Own = self._own
        self._note = ""
        self._phase = phase
        self._lowering = ACCEPTED.get(precision)
        self._trial = Trial(pair, seed, phase, self._own.spoil, self._lowering, level.max_float64)
        self._states = States(self._trial, phase, self._trial_of)
        # in which order, and how often: what a candidate could count says nothing
        self._order = Random(stream(seed, "order"))
        self._deadline = time.monotonic() + deadline_s

    @property
    def precision(self) -> str | None:
        """The precision of ModelNew's results, by measurement."""
        return self._trial.precision

    @property
    def unjudged(self) -> tuple[str, ...]:
        """What candidates that compute nothing would pass all checks, and for which output."""
        return self._trial.unjudged

    def verify(self) -> tuple[Check, ...]:
        """Every check, in order; ends early when the device is lost.

        Where it is to stop at the first check that fails, that one is the last.
        """
        try:
            for check in self._all():
                self.checks.append(check)
                if not check.passed and self._stop_at_first:
                    break
        except DeviceLost as lost:
            self.device_lost = True
            self.checks.append(lost.check)
        return tuple(self.checks)

    def _all(self) -> Iterator[Check]:
        yield self._signature()
        original = self.pair.original
        state = compare_state(original, self.pair.new.state(dict(state_tensors(original))))
        yield state
        own = Kind("own inputs", self._own, names_precision=True)
        main = self._trial.compare(own, main=True)
        yield main
        if not main.passed and main.error_vs_f64 is None:
            return  # it raises, or returns something else: all the rest would say the same
        if not state.passed:
            return  # the rest needs one state on both sides
        if main.passed:
            self._after_main()
        self._reduce()
        yield self._aliases()
        self.degenerate = self._examine()
        few = Kind("own inputs, another seed", self._later, self._note)
        yield from self._repeats(few)
        yield kept.compare_kept(self._trial, self._few, self.seed)
        yield self._trial.compare(few)
        yield self._optional(Kind(SWAPPED, swapped(self._few, self.seed)), least_draws=NUM_SWAPS)
        yield self._same_tensors()
        yield self._same_memory()
        yield self._uninitialised()
        for kind in self._shuffled(value_kinds(self._few, self.seed)):
            yield self._optional(kind, new_values=True)
        yield from self._other_calls()
        yield self._guarded()
        if self.pair.device.type == "cuda":
            yield self._on_stream("a side stream", SIDE_STREAM)
            yield self._on_stream("after other work on the stream", BUSY_STREAM)
        yield from self._sharpened()
        yield from self._gradients()
        weights = OtherWeights(
            self._trial,
            self._states,
            self._few,
            self.seed,
            self._phase,
            self._note,
            self._trial_of,
            self._strict,
        )
        loaded = weights.loaded()
        yield loaded
        if loaded.passed:
            yield weights.in_place()
            for name, compare in weights.in_other_ways():
                yield self._in_time(name, compare)
            yield self._states.in_training(
                self._beyond(Kind("training mode", self._few, self._note))
            )
            if self._states.trains:
                yield self._states.in_eval(self._beyond(Kind("eval mode", self._few, self._note)))
            yield from self._beside_own()
            yield self._in_time(DRAWN, lambda: weights.redrawn(DRAWN))
        yield self._random_state()

    def _shuffled(self, kinds: Iterable[Kind]) -> Iterator[Kind]:
        """The kinds in an order that is drawn, with calls between them that nobody looks at."""
        among = list(kinds)
        for kind in self._order.sample(among, len(among)):
            if self._order.random() < _BETWEEN:
                self._trial.run_new(self._few(self._order.randrange(_DRAWS_BETWEEN)), kind.name)
            yield kind

    def _other_calls(self) -> Iterator[Check]:
        """Other batches, layouts, inner sizes and arguments than the own inputs have."""
        inputs, model, seed = self._few, self.pair.original, self.seed
        layouts = map(self._beyond, layout_kinds(inputs, seed))
        batches = batch_kinds(inputs, seed, self._level.num_batches)
        for kind in self._shuffled((*batches, *layouts)):
            yield self._optional(kind)
        kinds = *inner_kinds(inputs, seed), *argument_kinds(inputs, model, seed, self._accepts)
        for kind in self._shuffled(map(self._beyond, kinds)):
            yield self._optional(kind, new_values=True)
        if self._trial.main_runs and not self._trial.main_runs[1].changed_inputs:
            for kind in (*sharing_kinds(inputs), *weight_kinds(inputs, model)):
                yield self._optional(self._beyond(kind), new_values=True)

    def _beside_own(self) -> Iterator[Check]:
        """Inference mode, autocast and other dtypes: those that are asked for, and one of each that
        is not.
        """
        kind = self._beyond(Kind("inference mode", self._few, self._note))
        yield self._in_time(kind.name, lambda: self._states.in_inference_mode(kind))
        for dtype in dict.fromkeys((*self._beside.autocast, AUTOCAST)):
            asked = dtype in self._beside.autocast
            name = f"autocast to {dtype}"
            kind = Kind(name, self._few, coarse=not asked)
            with self._states.autocast(dtype):
                yield self._optional(kind if asked else self._beyond(kind))
        for dtype in dict.fromkeys((*self._beside.dtypes, DTYPE)):
            asked = dtype in self._beside.dtypes
            given = dtype, self._few, self._note, asked, not (asked or self._strict)
            yield self._in_time(f"in {dtype}", partial(self._states.in_dtype, *given))
            self.pair.new.build(stream(self.seed, "parameters"))

    def _random_state(self) -> Check:
        """Of all calls so far: the generators of torch, Python and NumPy as the original's calls
        leave them.
        """
        clause = self._trial.random_clause
        return Check(RANDOM_STATE, clause is None, clause or "as the original's calls leave it")

    def _reduce(self) -> None:
        """Take fewer rows from here on where the inputs are large and the original allows it."""
        call, kind = self._own(0), self.pair.device.type
        size = leading_size(call) or 0
        rows = _share(size, self._level.max_elems[kind], self._trial.num_elems)
        try:
            with torch.no_grad():
                flops = product_flops(self.pair.original, resize(call, rows))
                rows = _share(rows, self._level.max_flops[kind], flops)
                few = resize(call, rows)
                self.pair.original(*few.args, **few.kwargs)
        except Exception:
            return  # whatever it is, the checks on all rows will meet it again
        if rows < size:
            self._few, self._note = resized(self._own, rows), f"on {rows} of {size} rows"

    def _signature(self) -> Check:
        original = self.pair.original
        theirs = parameters_of(self.pair.module.Model), parameters_of(original.forward)
        try:
            clause = signature_clause(self.pair.new.signature(), theirs)
        except Raised as error:
            clause = str(error)
        return Check(signature.NAME, clause is None, f"ModelNew's {clause}" if clause else "alike")

    def _aliases(self) -> Check:
        """Outputs share memory as the original's do; other strides are noted."""
        assert self._trial.main_runs is not None
        new, original = self._trial.main_runs
        found = kept.shared_with(self._trial, self._few)
        if isinstance(found, Check):
            return found
        ours = (*aliases.of_outputs(new.aliases), *found)
        clause = alias_clause(ours, aliases.without_names(original.aliases))
        note = stride_note(original.names, new.strides, original.strides)
        alike = "as the original's" if original.aliases else "no output shares memory"
        return Check(aliases.NAME, clause is None, clause or "; ".join(filter(None, (alike, note))))

    def _examine(self) -> str | None:
        """Whether the outputs depend on what the model is given; None where that cannot be told."""
        if self._trial.pristine is not None or self._trial.draws_random:
            return None
        normal = [kind.make(0) for kind in value_kinds(self._few, self.seed)[:1]]
        calls, model = [self._few(0), self._later(0), *normal], self.pair.original
        try:
            if self.pair.device.type == "cuda" and self._asserts_on_device:
                # other values might end every further use of the device
                calls = [call.map(torch.Tensor.cpu) for call in calls]
                model = deep_copy(model).cpu()
            with torch.no_grad():
                eager = model(*calls[0].args, **calls[0].kwargs)
            found = [leaf for _, leaf in leaves(eager)]
            return examine(model, calls, self._trial.seed, self.pair.model_path, found)
        except Exception as error:
            if is_device_lost(error):
                raise
            return None  # an original that does not run so is met again by the checks

    def _sharpened(self) -> Iterator[Check]:
        """The own inputs at other scales, while a candidate that computes nothing would pass."""
        for factor in SHARPENING:
            if not self._trial.unjudged:
                return
            scaled = Kind(SHARPENED, rescaled(self._few, factor))
            yield self._optional(scaled, new_values=True)

    def _repeats(self, kind: Kind) -> Iterator[Check]:
        """The same call again is noted where it differs; an earlier result must stay."""
        name = "repeated runs"
        first = self._trial.run_new(kind.make(0), name, lazy=True)
        if isinstance(first, Check):
            yield first
            return
        before = snapshot(first)
        count = self._order.randint(*self._level.num_repeats)
        again = (self._trial.run_new(kind.make(0), name) for _ in range(count - 1))
        same = all(isinstance(other, Run) and bit_equal(other, before) for other in again)
        if same:
            yield Check(name, True, f"{count} runs are bit-equal")
        else:
            yield self._each_repeat(name, kind, count)
        self._trial.run_new(self._few(0), "an earlier result stays")
        kept = bit_equal(first, before)
        detail = "later calls leave it alone" if kept else "a later call overwrites it"
        yield Check("an earlier result stays", kept, detail)

    def _each_repeat(self, name: str, kind: Kind, count: int) -> Check:
        """Runs that differ have to be right, every one of them."""
        same = Kind(name, lambda draw: kind.make(0), kind.note)
        check = self._trial.compare(same, least_draws=count)
        return replace(check, detail=f"runs differ in some bits; {check.detail}")

    def _same_tensors(self) -> Check:
        """The very same tensor objects as in the call before, with the same values."""
        name = "the same tensors again"
        self._trial.run_new(self._few(0), name)
        return self._optional(Kind(name, self._few, manner=Manner(same_memory=True)))

    def _uninitialised(self) -> Check:
        self._trial.filled = True
        check = self._trial.compare(
            Kind("uninitialised memory filled with NaN", self._few, self._note)
        )
        self._trial.filled = False
        return check

    def _on_stream(self, name: str, stream: str) -> Check:
        return self._optional(Kind(name, self._later, manner=Manner(stream=stream)))

    def _guarded(self) -> Check:
        """At a size at which what is written beyond the end cannot fall into unused memory."""
        few, trial = self._few(0), self._trial
        size = leading_size(self._own(0))
        rows = tight_rows(size, leading_size(few) or 0, trial.num_elems, trial.main_extents)
        make = resized(self._few, rows) if rows else self._few
        return self._optional(Kind(guards.NAME, make, manner=Manner(guarded=True)))

    def _gradients(self) -> Iterator[Check]:
        """While there is time; the first one always."""
        found = gradients.compare_all(
            self._states,
            self._trial,
            self._few,
            self.seed,
            self._phase,
            self._note,
            self._lowering,
            self._strict,
        )
        for check in found:
            yield check
            if time.monotonic() > self._deadline:
                return

    def _trial_of(self, original: nn.Module) -> Trial:
        """Comparisons with another original; ModelNew was made like it."""
        trial = Trial(
            replace(self.pair, original=original),
            self.seed,
            self._phase,
            self._own.spoil,
            self._lowering,
            self._level.max_float64,
        )
        trial.pristine = copy_state(original) if self._trial.pristine is not None else None
        return trial

    def _beyond(self, kind: Kind) -> Kind:
        """A kind that is not in the scope of the call: there ModelNew may refuse."""
        return replace(kind, may_refuse=not self._strict)

    def _optional(self, kind: Kind, new_values: bool = False, least_draws: int = 1) -> Check:
        """A check that the time limit, or a device that would be lost by it, may leave out."""
        if new_values and self.pair.device.type == "cuda" and self._asserts_on_device:
            if refusal := refusal_on_cpu(self.pair.original, kind.make(0)):
                return Check(kind.name, True, refusal, skipped=True)
        kind = replace(kind, note=self._note)
        return self._in_time(kind.name, lambda: self._trial.compare(kind, least_draws=least_draws))

    def _in_time(self, name: str, compare: Callable[[], Check]) -> Check:
        """A check that is skipped where no time is left."""
        if time.monotonic() > self._deadline:
            return Check(name, True, "no time left within the time limit", skipped=True)
        return compare()

    def _accepts(self, call: Call) -> bool:
        """Whether the original takes these arguments, by a copy that keeps its state."""
        if self.pair.device.type == "cuda":
            return refusal_on_cpu(self.pair.original, call) is None
        try:
            model = deep_copy(self.pair.original)
            with torch.no_grad():
                model(*call.args, **call.kwargs)
        except Exception:
            return False
        return True

    @cached_property
    def _asserts_on_device(self) -> bool:
        return asserts_on_device(self.pair.original, self._few(0))

    def _later(self, draw: int) -> Call:
        return self._few(draw + MAX_DRAWS)

    def _same_memory(self) -> Check:
        """Tensors that ModelNew has seen, with other values: nothing but these tells."""
        name = "new values in the same memory"
        self._trial.run_new(self._few(0).map(torch.clone), name)
        return self._optional(Kind(name, self._later, manner=Manner(same_memory=True)))

    @property
    def few(self) -> Own:
        """The own inputs by draw, on the rows that the level allows."""
        return self._few

    @property
    def trial(self) -> Trial:
        """Both sides, as the checks left them: with the weights that they were built with."""
        return self._trial


def _share(rows: int, limit: int, cost: int) -> int:
    """As many rows as stay within the limit, an odd number of them."""
    if cost <= limit:
        return rows
    return min(rows, max(MIN_ROWS, rows * limit // cost) | 1)
