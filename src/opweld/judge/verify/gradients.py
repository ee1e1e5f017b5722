"""Gradients of both sides for the same random output gradients, against float64.

A ModelNew without any gradients is for inference only, and the check says so; one with wrong
gradients fails, and so does one that has them for the own inputs and loses them elsewhere.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.inputs.gradient_cases import IN_EVAL, IN_TRAINING, NAME, Case, cases
from opweld.judge.inputs.kinds import Own, move_by_ulp, value_kinds
from opweld.judge.load import NEW, ORIGINAL, Call, Pair, brief, is_device_lost
from opweld.judge.numerics.compare import is_near
from opweld.judge.numerics.differentiate import (
    AFTERWARDS,
    DENSE,
    EXPANDED,
    GradOutputs,
    differentiate,
    draw_grad_outputs,
    fresh_grad_outputs,
    map_grad_outputs,
    record,
)
from opweld.judge.numerics.draws import Draws, OtherDraws, Replaying, run_recorded
from opweld.judge.numerics.effective import Lowered, Lowering, allowed_in
from opweld.judge.numerics.lowered import larger_error
from opweld.judge.numerics.outputs import Comparison, bit_equal, dense, is_float, mismatch
from opweld.judge.numerics.precision import FLOAT64, NoReference
from opweld.judge.numerics.reference import Block
from opweld.judge.numerics.shaken import moved_weights
from opweld.judge.process.protocol import Raised
from opweld.judge.tree import tensors
from opweld.judge.values import Check, joined
from opweld.judge.verify.modes import EVAL, OWN, TRAINING
from opweld.judge.verify.run import DeviceLost, Run
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.states import States
from opweld.judge.verify.trial import Phase, Trial
from opweld.judge.verify.weights import State, copy_state, load_state

# A gradient so much smaller than another one is a difference of equal numbers.
_NOTHING = 1e-4
# A gradient that is off by this share is no other order of the same sums.
_FAR = 0.1
# Beside the largest gradient: what cancels to nothing has the size of rounding, in TF32 at most.
_NEGLIGIBLE = 1e-2
_ROWS = torch.contiguous_format
# Of the original, where it differs from time to time, as cuDNN's gradients do.
_RERUNS = 2
# A check of several cases begins no more of them after this.
_SECONDS = 2.0


class Gradients:
    """Compares the gradients of both sides in the mode that they are in.

    With `pristine`, both start every forward from that state. With `lowering`, errors may be those
    of the original lowered so; without, as large as torch's flags allow those of convolutions. With
    `strict`, ModelNew has gradients wherever the original has.
    """

    def __init__(
        self,
        pair: Pair,
        seed: int,
        phase: Phase,
        lowering: Lowering | None = None,
        pristine: State | None = None,
        strict: bool = False,
    ) -> None:
        self._strict = strict
        self._pair = pair
        self._seed = stream(seed, "calls")
        self._grad_outputs_seed = stream(seed, "output gradients")
        self._phase = phase
        self._lowering = lowering
        self._pristine = pristine
        self._wide: nn.Module | None = None
        self._sizes: list[float] = []

    def compare(self, case: Case) -> Check:
        """The gradients of every floating-point input and parameter that asks for one."""
        self._phase(ORIGINAL, case.name)
        original = self._pair.original
        try:
            self._restore()
            graphs = record(original, case.calls, self._seed, case.how)
            grad_outputs = draw_grad_outputs(graphs, self._grad_outputs_seed, case.how)
            eager = differentiate(graphs, fresh_grad_outputs(grad_outputs), case.how)
        except Exception as error:
            return _skipped(case.name, f"the original has none: {brief(error, 160)}", error)
        if case.name == NAME:
            self._sizes = _sizes(eager)
        if case.how.grad_layout == EXPANDED and _cancels(eager, self._sizes):
            return _skipped(case.name, "equal output gradients cancel: what is left is rounding")
        if case.extreme and not _all_finite(eager):
            return _skipped(case.name, "the original's gradients are not finite")
        self._phase(NEW, case.name)
        try:
            if self._pristine is not None:
                self._pair.new.load_state(self._pristine)
            asked = (case.calls, fresh_grad_outputs(grad_outputs), self._seed, case.how, eager)
            new: Run = self._pair.new.gradients(*asked)
        except Raised as error:
            check = _raised(case, error, self._strict)
            if error.lost:
                raise DeviceLost(check) from error
            return check
        if clause := mismatch(new, eager):
            return Check(case.name, False, f"ModelNew: {clause}", grade="F")
        if bit_equal(new, eager):
            return Check(case.name, True, joined("bit-equal to eager", case.note), grade="A")
        check = self._graded(case, grad_outputs, new, eager)
        if check.passed or not (wrong := self._wrong_by_layout(case, grad_outputs, eager)):
            return check
        leaves = [eager.leaves[n] if n in wrong else leaf for n, leaf in enumerate(new.leaves)]
        others = self._graded(case, grad_outputs, replace(new, leaves=leaves), eager)
        if not others.passed:
            return others
        names = ", ".join(eager.names[n] for n in sorted(wrong))
        detail = f"the original's own {names} differs by how output gradients lie in memory"
        return _skipped(case.name, detail)

    def _wrong_by_layout(self, case: Case, grad_outputs: GradOutputs, eager: Run) -> set[int]:
        """Of which gradients the original has others for the same numbers in rows, as PyTorch's
        attention in 16 bits does that takes strides of zero for others. One that is next to nothing
        beside the largest is rounding, and counts as any.
        """
        if case.how.grad_layout == DENSE:
            return set()
        self._restore()
        graphs = record(self._pair.original, case.calls, self._seed, case.how)
        rows = map_grad_outputs(grad_outputs, lambda g: g.clone(memory_format=_ROWS))
        found = differentiate(graphs, rows, case.how, eager)
        pairs = [
            (number, dense(one), dense(other))
            for number, (one, other) in enumerate(zip(eager.leaves, found.leaves, strict=True))
            if isinstance(one, Tensor)
            and is_float(one)
            and not eager.names[number].endswith(AFTERWARDS)
        ]
        least = _NEGLIGIBLE * max((_largest(other) for _, _, other in pairs), default=0.0)
        return {n for n, a, b in pairs if _largest(b) > least and not is_near(a, b, _FAR)}

    def _graded(self, case: Case, grad_outputs: GradOutputs, new: Run, eager: Run) -> Check:
        comparison, everything = Comparison(eager), set(range(len(eager.leaves) - 1))
        try:
            block = self._exact(case, grad_outputs, eager)
            standards = self._standards(case, grad_outputs, eager, block)
            useless = comparison.add(new, next(standards), block) & everything
            if not useless:
                _take_better(comparison, case, new, standards, block)
            comparison.no_reference = "float64 is not more precise" if useless else None
        except (NoReference, OtherDraws, RuntimeError) as reason:
            comparison.no_reference, useless = str(reason), everything
        if useless:
            self._add_noise(comparison, case, grad_outputs, new, eager, useless)
        check = _lenient(comparison.check(case.name, case.note))
        if check.passed or not case.extreme:
            return check
        within = Comparison(eager)
        self._add_noise(within, case, grad_outputs, new, eager, everything)
        if not within.check(case.name).passed:
            return check
        detail = joined(case.note, "within what one ulp of the inputs changes")
        return replace(check, passed=True, grade="C", detail=detail, first_bad_index=None)

    def _standards(
        self, case: Case, grad_outputs: GradOutputs, eager: Run, block: Block
    ) -> Iterator[Run]:
        """Runs of the original. Each gradient has to be as exact as that of one of them: an element
        on the edge of a relu or a maximum falls to either side, and not to the same in all.
        """
        lowered = self._lowered_run(case, grad_outputs, eager, self._lowering) or eager
        allowed = self._allowed_run(case, grad_outputs, eager)
        if allowed is not None:
            yield larger_error(lowered, allowed, block)
        yield lowered
        for _ in range(_RERUNS):
            again = self._lowered_run(case, grad_outputs, eager, self._lowering)
            yield again or self._rerun(case.calls, grad_outputs, case, eager)

    def _exact(self, case: Case, grad_outputs: GradOutputs, eager: Run) -> Block:
        """The float64 gradients.

        Raises:
            NoReference: there are none.
        """
        drawn = iter(self._draws(case) if eager.draws_random else ())
        self._restore()
        wide = self._wide = self._wide or FLOAT64.model(self._pair.original)

        def forward(call: Call) -> Any:
            return FLOAT64.run(wide, call, self._seed, grad=True, draws=next(drawn, ()))

        calls = [call.map(FLOAT64.tensor) for call in case.calls]
        graphs = record(wide, calls, self._seed, case.how, forward)
        exact = map_grad_outputs(grad_outputs, FLOAT64.fresh)
        # a forward that is run again in the backward would draw others
        none = Replaying((), FLOAT64.tensor) if eager.draws_random else contextlib.nullcontext()
        with none:
            return Block(None, differentiate(graphs, exact, case.how, eager).leaves)

    def _draws(self, case: Case) -> list[Draws]:
        """The random numbers of each forward.

        Raises:
            OtherDraws: they are not known.
        """
        found: list[Draws] = []

        def forward(call: Call) -> Any:
            outputs, drawn = run_recorded(self._pair.original, call, self._seed)
            found.append(drawn)
            return outputs

        self._restore()
        record(self._pair.original, case.calls, self._seed, case.how, forward)
        return found

    def _rerun(
        self, calls: Sequence[Call], grad_outputs: GradOutputs, case: Case, eager: Run
    ) -> Run:
        """The original on other calls, or under what is in force around this."""
        self._restore()
        graphs = record(self._pair.original, calls, self._seed, case.how)
        return differentiate(graphs, fresh_grad_outputs(grad_outputs), case.how, eager)

    def _lowered_run(
        self, case: Case, grad_outputs: GradOutputs, eager: Run, lowering: Lowering | None
    ) -> Run | None:
        if lowering is None:
            return None
        with Lowered(lowering) as mode:
            found = self._rerun(case.calls, grad_outputs, case, eager)
        return found if mode.acted or lowering is self._lowering else None

    def _allowed_run(self, case: Case, grad_outputs: GradOutputs, eager: Run) -> Run | None:
        """With convolutions as inexact as torch's flags allow."""
        allowed = None if self._lowering else allowed_in(self._pair.device)
        return self._lowered_run(case, grad_outputs, eager, allowed)

    def _add_noise(
        self,
        comparison: Comparison,
        case: Case,
        grad_outputs: GradOutputs,
        new: Run,
        eager: Run,
        which: set[int],
    ) -> None:
        """What the original's gradients change by when everything that it is given does by an ulp.

        Output gradients are what they were, so they have no noise.
        """
        calls = [call.map(move_by_ulp) for call in case.calls]
        shaken_outputs = map_grad_outputs(grad_outputs, move_by_ulp)
        self._restore()
        with moved_weights(self._pair.original):
            graphs = record(self._pair.original, calls, self._seed, case.how)
            shaken = differentiate(graphs, shaken_outputs, case.how, eager)
        num_given = sum(t.numel() for call in case.calls for t in call.tensors())
        num_grad_outputs = sum(t.numel() for t in tensors(grad_outputs))
        comparison.add_noise(new, eager, shaken, 1.0, sorted(which), num_given + num_grad_outputs)

    def _restore(self) -> None:
        if self._pristine is not None:
            load_state(self._pair.original, self._pristine)
            self._wide = None


def _take_better(
    comparison: Comparison, case: Case, new: Run, standards: Iterator[Run], block: Block
) -> None:
    """Of each gradient the best grade beside one of the standards, as many as there is need for."""
    with contextlib.suppress(RuntimeError):  # of memory, say: it is judged by those that there are
        while not _lenient(comparison.check(case.name)).passed:
            standard = next(standards, None)
            if standard is None:
                return
            one = Comparison(comparison.run)
            one.add(new, standard, block)
            comparison.take_better(one)


def compare_all(
    states: States,
    trial: Trial,
    own: Own,
    seed: int,
    phase: Phase,
    note: str = "",
    lowering: Lowering | None = None,
    strict: bool = False,
) -> Iterator[Check]:
    """The checks, in order: on the own inputs and, where ModelNew has gradients there, the others.

    They run in eval where the model changes its own state in training, as norms do; one of them is
    in the other mode.
    """
    state, stateful = copy_state(trial.pair.original), trial.pristine is not None
    if stateful and not states.trains:
        yield _skipped(NAME, "the model changes its own state")
        return
    if trial.pristine is not None:
        state = trial.pristine
        states.load(state)  # which calls in training have moved
        states.put(EVAL)
    # a model may count its calls in eval, too
    checks = Gradients(trial.pair, seed, phase, lowering, trial.pristine, strict)
    main = checks.compare(Case(NAME, (own(0),), note=note, may_refuse=stateful))
    yield main
    has_gradients = main.passed and not main.skipped
    if has_gradients:
        for made in cases(own, trial.pair.original, seed, note):
            yield _worst_of(checks.compare(case) for case in made())
    if has_gradients or (main.unsupported and stateful):
        in_eval = stateful or not states.trains
        states.put(TRAINING if in_eval else EVAL)
        # training moves buffers, if anything
        kept = state if in_eval and list(trial.pair.original.buffers()) else None
        checks = Gradients(trial.pair, seed, phase, lowering, kept, strict)
        name = IN_TRAINING if in_eval else IN_EVAL
        normal = value_kinds(own, stream(seed, name))[:1]
        given = [own(0), *(kind.make(0) for kind in normal)]
        yield _worst_of(
            checks.compare(
                Case(name, (call,), note=note, extreme=True, may_refuse=not has_gradients)
            )
            for call in given
        )
        states.load(state)
    states.put(OWN)


def _worst_of(found: Iterator[Check]) -> Check:
    """The first that fails; else the one of the lowest grade, or one that was skipped.

    There are no more of them than there is time for.
    """
    checks, started = [], time.monotonic()
    for check in found:
        if not check.passed:
            return check
        checks.append(check)
        if time.monotonic() - started > _SECONDS:
            break
    graded = [check for check in checks if not check.skipped]
    return max(graded, key=lambda check: check.grade or "A") if graded else checks[0]


def _raised(case: Case, error: Raised, strict: bool) -> Check:
    """On the own inputs, without gradients, it is one for inference; elsewhere it loses them. In
    the other mode it may refuse.
    """
    if strict:
        return Check(case.name, False, str(error), grade="F")
    if case.name == NAME and (error.without_gradients or not case.may_refuse):
        detail = f"ModelNew is for inference only: {error}"
        return Check(NAME, True, detail, skipped=True, unsupported=True)
    beyond = case.name in (IN_TRAINING, IN_EVAL) and not error.without_gradients
    if beyond or case.may_refuse:
        return error.refusal(case.name)
    return Check(case.name, False, str(error), grade="F")


def _all_finite(run: Run) -> bool:
    return all(bool(t.isfinite().all()) for t in _floats(run))


def _largest(t: Tensor) -> float:
    """The largest finite absolute value."""
    return float(torch.where(t.isfinite(), t, 0).abs().max()) if t.numel() else 0.0


def _sizes(run: Run) -> list[float]:
    """The largest absolute value of each gradient."""
    return [float(t.abs().max()) if t.numel() else 0.0 for t in _floats(run)]


def _floats(run: Run) -> list[Tensor]:
    return [dense(t) for t in tensors(run.leaves) if is_float(t)]


def _cancels(run: Run, sizes: list[float]) -> bool:
    """Whether a gradient is nothing beside that of output gradients of no pattern, as it is where
    equal ones meet behind a softmax.
    """
    found = zip(_sizes(run), sizes, strict=False)
    return any(0 < size and small < _NOTHING * size for small, size in found)


def _lenient(check: Check) -> Check:
    """A derivative is the same by several formulas of different accuracy: grade C will do, as the
    lowest of all gradients.

    In 16 bits these part beyond it, so that there a gradient fails when half its digits are lost.
    """
    if check.passed:
        return check
    kept = False
    if check.dtype in ("float16", "bfloat16") and check.error_vs_f64 and check.scale:
        eps = torch.finfo(getattr(torch, check.dtype)).eps
        kept = check.error_vs_f64.rms <= math.sqrt(eps) * check.scale
    return replace(check, passed=True, grade="C") if check.grade == "C" or kept else check


def _skipped(name: str, detail: str, error: Exception | None = None) -> Check:
    check = Check(name, True, detail, skipped=True)
    if error is not None and is_device_lost(error):
        raise DeviceLost(check) from error
    return check
