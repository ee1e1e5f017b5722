"""Both sides in other states than the one that is judged: modes, autocast, dtypes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from opweld.judge.inputs.kinds import Kind
from opweld.judge.load import NEW, Call
from opweld.judge.process.protocol import Raised
from opweld.judge.sparse import deep_copy
from opweld.judge.values import Check
from opweld.judge.verify.modes import EVAL, OWN, TRAINING, Modes
from opweld.judge.verify.trial import Phase, Trial
from opweld.judge.verify.weights import State, copy_state, load_state


@dataclass(frozen=True, slots=True)
class Beside:
    """Dtypes beside the example's own in which both sides are compared, too: those of autocast, and
    those of parameters and inputs.
    """

    autocast: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()


NOTHING_BESIDE = Beside()


class States:
    """Puts both sides of a trial into other states, and out of them again.

    `trial_of` makes a trial with another original.
    """

    def __init__(self, trial: Trial, phase: Phase, trial_of: Callable[[nn.Module], Trial]) -> None:
        self._trial = trial
        self._pair = trial.pair
        self._phase = phase
        self._trial_of = trial_of
        self._modes = Modes(trial.pair.original)

    @property
    def trains(self) -> bool:
        """Whether any of the original is in training as it is judged."""
        return self._modes.trains

    def put(self, mode: str) -> None:
        """Both sides in a mode, or (OWN) in the one that they are judged in."""
        self._modes.put(mode)
        self._pair.new.train(mode)
        self._trial.weights_changed()

    def load(self, state: State) -> None:
        """The same parameters and buffers for both sides."""
        load_state(self._pair.original, state)
        self._pair.new.load_state(state)
        self._trial.weights_changed()

    def in_training(self, kind: Kind) -> Check:
        """Training mode with gradients on: results, the buffers afterwards, and random numbers."""
        return self._in_mode(kind, TRAINING, grad=True)

    def in_eval(self, kind: Kind) -> Check:
        return self._in_mode(kind, EVAL, grad=False)

    def _in_mode(self, kind: Kind, mode: str, grad: bool) -> Check:
        trial, state = self._trial, copy_state(self._pair.original)
        before, trial.pristine, trial.grad = trial.pristine, state, grad
        self.put(mode)
        check = trial.compare(kind)
        self.put(OWN)
        trial.pristine, trial.grad = before, False
        self.load(state)
        return check

    @contextlib.contextmanager
    def autocast(self, dtype: str) -> Iterator[None]:
        """Every call under autocast to this dtype."""
        self._trial.autocast = dtype
        yield
        self._trial.autocast = ""

    def in_inference_mode(self, kind: Kind) -> Check:
        """Every call in inference mode; ModelNew must be built anew after it, for what it keeps of
        them can have no gradients. Until then both sides can write to what their forwards assigned.
        """
        self._trial.inference = True
        check = self._trial.compare(kind)
        self._trial.inference = False
        self.load(copy_state(self._pair.original))
        return check

    def in_dtype(
        self,
        dtype: str,
        few: Callable[[int], Call],
        note: str,
        asked: bool = True,
        may_refuse: bool = False,
    ) -> Check:
        """Parameters, buffers and inputs of another dtype; ModelNew must be built anew after it.

        Where it was not `asked` for, ModelNew may be as inexact as float32 is.
        """
        name, wanted = f"in {dtype}", getattr(torch, dtype)
        original = deep_copy(self._pair.original).to(wanted)

        def make(draw: int) -> Call:
            return few(draw).map(lambda t: t.to(wanted) if t.is_floating_point() else t)

        self._phase(NEW, name)
        try:
            self._pair.new.convert(dtype)
        except Raised as error:
            return error.refusal(name) if may_refuse else Check(name, False, str(error))
        kind = Kind(name, make, note, may_refuse=may_refuse, coarse=not asked)
        return self._trial_of(original).compare(kind)
