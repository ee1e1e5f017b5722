"""One kind of inputs on both sides, judged: the step that every check of the numbers repeats."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from opweld.judge.inputs.kinds import (
    INFINITE_ROWS,
    LARGEST,
    PLAIN,
    SPECIAL,
    Kind,
    Manner,
)
from opweld.judge.load import NEW, ORIGINAL, Call, Pair, brief, guard_original, is_device_lost
from opweld.judge.numerics.draws import Draws, OtherDraws, run_recorded
from opweld.judge.numerics.effective import EVERYWHERE, Lowering, allowed_in, is_coarse
from opweld.judge.numerics.lowered import allowed_run, larger_error, lowered_run
from opweld.judge.numerics.noise import FLOAT32_TO_FLOAT64
from opweld.judge.numerics.observed import Observed
from opweld.judge.numerics.outputs import (
    Comparison,
    bit_equal,
    coarsened,
    is_float,
    is_out_of_range,
    mismatch,
)
from opweld.judge.numerics.precision import NoReference
from opweld.judge.numerics.reference import Reference
from opweld.judge.numerics.shaken import narrow_run, shaken_run
from opweld.judge.process.protocol import How, Raised
from opweld.judge.tree import tensors
from opweld.judge.values import Check, joined
from opweld.judge.verify.guards import Extent, extent_of
from opweld.judge.verify.run import (
    DeviceLost,
    Run,
    autocast_to,
    filled_memory,
    outputs_of,
    random_clause,
    run,
)
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.trivial import Pass, Trivial, unjudged
from opweld.judge.verify.weights import State, copy_state, load_state

# A grade needs some elements: the smallest output is pooled over draws until it has as many.
POOL_ELEMS, MAX_DRAWS, POOL_SECONDS = 64, 16, 5.0
# Outputs up to this size are run once more, on other inputs or lowered to another format.
MAX_EXTRA_ELEMS = 2**26

Phase = Callable[[str, str], None]


class Trial:
    """Both sides and the float64 reference, ready to be called with one kind after the other.

    `phase(who, what)` is told before either side runs. Where a run changes the state, both sides
    start every run from `pristine`; where a run may have written to its inputs, `spoil` is called.
    `num_elems` counts the elements of inputs and outputs in the main check, `main_runs` are both
    sides' there, without their leaves, and `main_extents` the outputs' sizes. `max_float64` is a
    level's. With `lowering`, errors may be those of the original lowered so; without, they may be
    as large as torch's flags allow those of convolutions to be. `random_clause` is the first
    generator that ModelNew left in another state.
    """

    def __init__(
        self,
        pair: Pair,
        seed: int,
        phase: Phase,
        spoil: Callable[[], None] = lambda: None,
        lowering: Lowering | None = None,
        max_float64: int | None = None,
    ) -> None:
        self.pair = pair
        # the random state that both sides are given before a call; the candidate is told
        self.seed = stream(seed, "calls")
        self.grad = False
        self.autocast = ""
        self.inference = False
        self.filled = False
        self.random_clause: str | None = None
        self.pristine: State | None = None
        self.num_elems = 0
        self.main_runs: tuple[Run, Run] | None = None
        self.main_extents: tuple[Extent, ...] = ()
        self.draws_random = False
        self._lowering = lowering
        self._allowed = None if lowering else allowed_in(pair.device)
        self._dtypes: set[str] = set()
        self._observed = Observed(self.seed)
        self._unrefuted: frozenset[Pass] = frozenset()
        self._phase = phase
        self._spoil = spoil
        self._reference = Reference(pair.original, pair.device, self.seed, max_float64)

    def weights_changed(self) -> None:
        """The parameters, buffers or mode of both sides have been set anew."""
        self._reference.refresh()

    @property
    def precision(self) -> str | None:
        """The precision of ModelNew's results, named by what was measured; None where errors beyond
        eager's were, and not what would cause them.
        """
        return self._observed.precision(self._dtypes) if self.main_runs else None

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Which candidates that compute nothing would have passed all checks so far."""
        return unjudged(self._unrefuted)

    def compare(self, kind: Kind, main: bool = False, least_draws: int = 1) -> Check:
        """Both sides and float64 on one kind of inputs, in several draws where outputs are small.

        In the `main` check the original's failure is the user's, figures are measured even where
        the bits are eager's, and trivial candidates are held to the same tolerance.

        Raises:
            DeviceLost: nothing more can run.
            ModelFileError: the original raises in the main check.
        """
        started = time.monotonic()
        comparison: Comparison | None = None
        for draw in range(MAX_DRAWS):
            outcome = self._compare_draw(kind, draw, comparison, main, least_draws == 1)
            if isinstance(outcome, Check):
                return outcome
            comparison = outcome
            comparison.end_draw()
            if draw + 1 < least_draws:
                continue
            if comparison.num_float_elems() >= POOL_ELEMS and comparison.is_settled:
                break
            if time.monotonic() - started > POOL_SECONDS:
                break
        assert comparison is not None
        check = comparison.check(kind.name, kind.note)
        if kind.names_precision and (self._lowering or not check.passed or _is_coarse(check)):
            self._observe(kind, comparison, check)
        if not check.passed and kind.may_tip(check) and self._within_condition(kind):
            detail = joined(kind.note, "within what one ulp of the inputs changes")
            return replace(check, passed=True, grade=None, detail=detail, first_bad_index=None)
        if not check.passed and kind.near_one and self._overflows_by_order(kind):
            note = joined(kind.note, "finite numbers near one: the original's products overflow")
            return self.compare(replace(kind, make=kind.near_one, near_one=None, note=note))
        if not check.passed and kind.coarse and (comparison.close or self._within_autocast(kind)):
            return replace(check, passed=True, grade="C", first_bad_index=None)
        # one element sets both figures there, so that chance has no others to even it out
        dominated = kind.name == LARGEST and check.grade == "C"
        return replace(check, passed=True) if dominated else check

    def run_new(
        self,
        call: Call,
        name: str,
        like: Run | None = None,
        how: Manner = PLAIN,
        lazy: bool = False,
        may_refuse: bool = False,
    ) -> Run | Check:
        """ModelNew's leaves, or the check that it fails or, where it may, refuses.

        With `like`, the original's run, an input or buffer changed beyond that one's is a failure.
        With `lazy` the leaves stay where they are until they are looked at.
        """
        self._phase(NEW, name)
        side, watch = self.pair.new, self.pristine is not None
        manner = how.same_memory, how.stream, how.guarded, self.autocast, how.weight, self.inference
        asked = How(self.seed, self.grad, watch, self.filled, *manner)
        try:
            if self.pristine is not None:
                side.load_state(self.pristine)
            new: Run = side.run(call, asked, like, lazy)
        except Raised as error:
            self._spoil()
            if may_refuse and error.is_refusal:
                return error.refusal(name)
            check = Check(name, False, str(error), grade="F")
            if error.lost:
                raise DeviceLost(check) from error
            return check
        if new.changed_inputs:
            self._spoil()
        return new

    def compare_run(
        self, kind: Kind, new: Run, comparison: Comparison | None
    ) -> Check | Comparison:
        """Takes in outputs that ModelNew gave for `kind.make(0)` at another time."""
        eager = self._run_original(kind, 0, main=False)
        if isinstance(eager, Check):
            return eager
        if eager.draws_random or eager.changed_state:
            return Check(kind.name, True, "results differ from call to call", skipped=True)
        eager = outputs_of(eager)
        if clause := mismatch(new, eager):
            return Check(kind.name, False, f"ModelNew: {clause}", grade="F")
        comparison = comparison or Comparison(eager)
        if not bit_equal(new, eager):
            self._add_figures(comparison, kind, 0, new, eager, False)
        return comparison

    def _compare_draw(
        self, kind: Kind, draw: int, comparison: Comparison | None, main: bool, may_end: bool
    ) -> Check | Comparison:
        eager = self._run_original(kind, draw, main)
        if isinstance(eager, Check):
            self._spoil()
            return eager
        if eager.changed_inputs:
            self._spoil()
        call, refuses = kind.make(draw), kind.may_refuse
        new = self.run_new(call, kind.name, eager, kind.manner, may_refuse=refuses)
        if isinstance(new, Check):
            return new
        if clause := random_clause(new, eager):
            self.random_clause = self.random_clause or f"{clause} ({kind.name})"
        if kind.coarse:
            new, eager = coarsened(new, eager)
        if clause := mismatch(new, eager):
            return Check(kind.name, False, f"ModelNew: {clause}", grade="F")
        if main and draw == 0:
            self._keep_main(new, eager)
        if draw == 0 and may_end and not main and bit_equal(new, eager):
            if trivial := self._trivial(kind, draw, eager, main):
                trivial.add()
                self._refute(trivial, main)
            return Check(kind.name, True, joined("bit-equal to eager", kind.note), grade="A")
        comparison = comparison or Comparison(eager, overflows=kind.name == LARGEST)
        self._add_figures(comparison, kind, draw, new, eager, main)
        return comparison

    def _run_original(self, kind: Kind, draw: int, main: bool) -> Run | Check:
        self._phase(ORIGINAL, kind.name)
        if main:
            return self._run_main(kind.make(draw))
        try:
            self._restore()
            return self._run_eager(kind.make(draw), watch=self.pristine is not None)
        except Exception as error:
            detail = f"the original refuses: {brief(error, 160)}"
            check = Check(kind.name, True, detail, skipped=True)
            if is_device_lost(error):
                raise DeviceLost(check) from error
            return check

    def _run_main(self, call: Call) -> Run:
        """The original's first run, which also shows whether it changes its own state."""
        before = self.pristine or copy_state(self.pair.original)
        self._restore()
        eager = guard_original(
            self.pair.model_path, "Model.forward", lambda: self._run_eager(call, watch=True)
        )
        self.pristine = before if eager.changed_state else None
        self.draws_random = eager.draws_random
        self.num_elems = sum(t.numel() for t in (*call.tensors(), *tensors(eager.leaves)))
        return eager

    def _run_eager(self, call: Call, watch: bool) -> Run:
        filled = filled_memory() if self.filled else contextlib.nullcontext()
        with filled, autocast_to(self.autocast, self.pair.device):
            model, inference = self.pair.original, self.inference
            return run(model, call, self.seed, self.grad, watch_state=watch, inference=inference)

    def _add_figures(
        self, comparison: Comparison, kind: Kind, draw: int, new: Run, eager: Run, main: bool
    ) -> None:
        """Against float64 where there is one, against eager's own noise where there is none."""
        call, unjudged = kind.make(draw), set(range(len(eager.leaves)))
        trivial, standard = self._trivial(kind, draw, eager, main), self._standard(call, eager)
        allowed = self._allowed_run(call, eager)
        try:
            drawn = self._draws(call, eager)
            pass_over = partial(comparison.pass_over, new, eager)
            for block in self._reference.blocks(call, eager, pass_over, drawn):
                held_to = standard if allowed is None else larger_error(standard, allowed, block)
                unjudged = comparison.add(new, held_to, block)
                if trivial:
                    trivial.add(block)
            comparison.no_reference = "float64 is not more precise" if unjudged else None
        except (NoReference, OtherDraws) as reason:
            comparison.no_reference = str(reason)
            if trivial:
                trivial.add()
        if trivial:
            self._refute(trivial, main)
            comparison.trivial = trivial.survivors if main else frozenset()
        if unjudged:
            self._add_noise(comparison, kind, draw, new, eager, sorted(unjudged))

    def _trivial(self, kind: Kind, draw: int, eager: Run, main: bool) -> Trivial | None:
        """The candidates that compute nothing, unless all of them have failed a check already.

        Where more than the tolerance is allowed, or a NaN is all that there is to fail by, failing
        does not count.
        """
        weak = kind.ill_conditioned or kind.name in (LARGEST, SPECIAL, INFINITE_ROWS)
        if draw or weak or not (main or self._unrefuted):
            return None
        return Trivial(eager, kind.make(draw).tensors(), self._run_other(kind, eager))

    def _refute(self, trivial: Trivial, main: bool) -> None:
        """A candidate that fails one check is no rival any more."""
        if main:
            self._unrefuted = trivial.survivors
        self._unrefuted -= trivial.tried - trivial.survivors

    def _run_other(self, kind: Kind, eager: Run) -> Run | None:
        """The original on the next draw, where that costs little and shows something."""
        if self.num_elems > MAX_EXTRA_ELEMS or eager.changed_inputs or self.pristine is not None:
            return None
        try:
            return self._run_eager(kind.make(1), watch=False)
        except Exception:
            return None

    def _standard(self, call: Call, eager: Run) -> Run:
        """The run whose error ModelNew's is held to: eager's, or the lowered original's."""
        if self._lowering is None:
            return eager
        self._restore()
        return lowered_run(self.pair.original, call, self.seed, eager, self._lowering)

    def _allowed_run(self, call: Call, eager: Run) -> Run | None:
        """The original whose convolutions are as inexact as torch's flags allow; None where they
        allow nothing, or it has none.
        """
        if self._allowed is None:
            return None
        self._restore()
        found = allowed_run(self.pair.original, call, self.seed, eager, self._allowed)
        self._allowed = self._allowed if found else None
        return found

    def _keep_main(self, new: Run, eager: Run) -> None:
        self.main_runs = replace(new, leaves=[]), replace(eager, leaves=[])
        self.main_extents = tuple(map(extent_of, tensors(outputs_of(eager).leaves)))
        self._dtypes = {
            str(t.dtype).removeprefix("torch.") for t in tensors(eager.leaves) if is_float(t)
        }

    def _observe(self, kind: Kind, comparison: Comparison, check: Check) -> None:
        """Hold the error of the worst output against what lower formats cost there."""
        if check.error_vs_f64 is None:
            return
        self._observed.is_whole = False
        if self.num_elems > MAX_EXTRA_ELEMS:
            return
        eager = self._run_original(kind, 0, main=False)
        if isinstance(eager, Check) or check.output not in eager.names:
            return
        worst, call = (eager.names.index(check.output), check.error_vs_f64.rms), kind.make(0)
        with contextlib.suppress(NoReference, OtherDraws):
            drawn = self._draws(call, eager)
            self._observed.add(self.pair.original, self._reference, call, drawn, eager, worst)

    def _draws(self, call: Call, eager: Run) -> Draws:
        """The random numbers that the original draws.

        Raises:
            OtherDraws: they are not known.
        """
        self._restore()
        if not eager.draws_random:
            return ()
        with autocast_to(self.autocast, self.pair.device), torch.set_grad_enabled(self.grad):
            given, like = call.map(torch.clone), tensors(outputs_of(eager).leaves)
            drawn = run_recorded(self.pair.original, given, self.seed, like)[1]
        self._restore()
        return drawn

    def _add_noise(
        self,
        comparison: Comparison,
        kind: Kind,
        draw: int,
        new: Run,
        eager: Run,
        positions: list[int],
    ) -> None:
        other, scale = self._shaken(kind, draw, eager), 1.0
        if all(_is_float64(eager.leaves[p]) for p in positions) and not eager.draws_random:
            self._restore()
            narrow = narrow_run(self.pair.original, kind.make(draw), self.seed, eager)
            other, scale = (narrow, FLOAT32_TO_FLOAT64) if narrow else (other, scale)
        num_inputs = sum(t.numel() for t in kind.make(draw).tensors())
        comparison.add_noise(new, eager, other, scale, positions, num_inputs)

    def _overflows_by_order(self, kind: Kind) -> bool:
        """Whether the original leaves its dtype's range: there the order of products decides."""
        eager, call = self._run_original(kind, 0, main=False), kind.make(0)
        with contextlib.suppress(NoReference, OtherDraws):
            if not isinstance(eager, Check):
                blocks = self._reference.blocks(call, eager, draws=self._draws(call, eager))
                return any(is_out_of_range(eager, block) for block in blocks)
        return False

    def _within_condition(self, kind: Kind) -> bool:
        """Whether all outputs differ by no more than what one ulp of the inputs changes."""
        self._restore()
        eager = self._run_original(kind, 0, main=False)
        if isinstance(eager, Check):
            return False
        new = self.run_new(kind.make(0), kind.name, eager)
        if isinstance(new, Check):
            return False
        comparison, everything = Comparison(eager), range(len(eager.leaves))
        num_inputs = sum(t.numel() for t in kind.make(0).tensors())
        comparison.add_noise(new, eager, self._shaken(kind, 0, eager), 1.0, everything, num_inputs)
        return comparison.check(kind.name).passed

    def _within_autocast(self, kind: Kind) -> bool:
        """Whether the errors are those of the original with every result in autocast's dtype."""
        if (lowering := EVERYWHERE.get(self.autocast)) is None:
            return False
        before, self._lowering = self._lowering, lowering
        try:
            found = self._compare_draw(kind, 0, None, main=False, may_end=False)
        finally:
            self._lowering = before
        return isinstance(found, Comparison) and found.check(kind.name).passed

    def _shaken(self, kind: Kind, draw: int, eager: Run) -> Run:
        self._restore()
        return shaken_run(self.pair.original, kind.make(draw), self.seed, self.grad, eager)

    def _restore(self) -> None:
        if self.pristine is not None:
            load_state(self.pair.original, self.pristine)
            self._reference.refresh()


def _is_float64(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float64, torch.complex128)


def _is_coarse(check: Check) -> bool:
    error = check.error_vs_f64
    return error is not None and is_coarse(check.dtype, error.rms, check.scale)
