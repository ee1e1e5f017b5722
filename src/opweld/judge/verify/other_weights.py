"""Both sides with other weights: loaded, written, stepped to, swapped, tied, drawn again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from torch import nn

from opweld.judge.inputs.kinds import Kind, Own
from opweld.judge.load import NEW, ORIGINAL, build_original
from opweld.judge.numerics.outputs import is_float
from opweld.judge.process.protocol import Raised
from opweld.judge.sparse import deep_copy
from opweld.judge.values import Check
from opweld.judge.verify import changes
from opweld.judge.verify.changes import NotForThis, change_weights
from opweld.judge.verify.run import state_tensors
from opweld.judge.verify.seeds import stream
from opweld.judge.verify.states import States
from opweld.judge.verify.trial import Phase, Trial
from opweld.judge.verify.weights import compare_state, copy_state, shake_state

LOADED, IN_PLACE = "other weights by load_state_dict", "other weights, in place"
# By an in-place op, which a tensor's version counter notices, or through `.data`, past it.
THROUGH = (changes.COPY, changes.DATA)
# Ways that may leave other objects behind: ModelNew is built anew after each.
WAYS = {
    "other weights, assigned": changes.ASSIGN,
    "other weights, moved": changes.MOVE,
    "other weights, by an optimizer": changes.OPTIMIZER,
    "other weights, by functional_call": changes.FUNCTIONAL,
    "other weights, in a deep copy": changes.DEEP_COPY,
    "other weights, tied": changes.TIE,
}
# What a ModelNew may refuse with an exception: not all that it holds can be copied, say.
_MAY_REFUSE = (changes.FUNCTIONAL, changes.DEEP_COPY)


class OtherWeights:
    """Changes the weights of both sides alike, compares, and leaves both as they were.

    `trial_of` makes a trial with another original. With `strict`, ModelNew refuses nothing.
    """

    def __init__(
        self,
        trial: Trial,
        states: States,
        own: Own,
        seed: int,
        phase: Phase,
        note: str,
        trial_of: Callable[[nn.Module], Trial],
        strict: bool = False,
    ) -> None:
        self._strict = strict
        self._trial = trial
        self._states = states
        self._own = own
        self._seed = seed
        self._phase = phase
        self._note = note
        self._trial_of = trial_of

    def loaded(self) -> Check:
        """Other parameters through load_state_dict: what is baked in or cached shows."""
        trial = self._trial
        state, stateful = copy_state(trial.pair.original), trial.pristine is not None
        if not self._has_weights:
            return Check(LOADED, True, "the model has no parameters", skipped=True)
        other = shake_state(state, self._seed)
        try:
            self._states.load(other)
        except Raised as error:
            return Check(LOADED, False, f"load_state_dict: {error}")
        trial.pristine = other if stateful else None
        check = trial.compare(Kind(LOADED, self._own, self._note))
        trial.pristine = state if stateful else None
        self._states.load(state)
        return check

    def in_place(self) -> Check:
        """Parameters that are written to, not loaded: nothing but their values tells."""
        trial = self._trial
        state, stateful = copy_state(trial.pair.original), trial.pristine is not None
        check = Check(IN_PLACE, True, "the model has no parameters", skipped=True)
        for through in THROUGH if self._has_weights else ():
            seed = stream(self._seed, IN_PLACE, through)
            change_weights(trial.pair.original, seed, through)
            try:
                trial.pair.new.change_weights(seed, through)
            except Raised as error:
                return Check(IN_PLACE, False, f"written through {through}: {error}")
            trial.weights_changed()
            trial.pristine = copy_state(trial.pair.original) if stateful else None
            note = ", ".join(filter(None, (f"by {through}", self._note)))
            check = trial.compare(Kind(IN_PLACE, self._own, note))
            if not check.passed:
                break
        trial.pristine = state if stateful else None
        self._states.load(state)
        return check

    def in_other_ways(self) -> Iterator[tuple[str, Callable[[], Check]]]:
        """The name of each other way, and what compares by it."""
        for name, way in WAYS.items() if self._has_weights else ():
            yield name, lambda name=name, way=way: self._changed(name, way)  # type: ignore[misc]

    def redrawn(self, name: str) -> Check:
        """Both models built again from another seed; then ModelNew from the first one again."""
        pair, seed = self._trial.pair, stream(self._seed, "parameters", 1)
        self._phase(ORIGINAL, name)
        original = build_original(pair.module, pair.model_path, seed, pair.device, pair.mode)
        self._phase(NEW, name)
        pair.new.build(seed)
        state = compare_state(original, pair.new.state(dict(state_tensors(original))))
        if not state.passed:
            return replace(state, name=name)
        check = self._trial_of(original).compare(Kind(name, self._own, self._note))
        self._build_anew()
        return check

    def _changed(self, name: str, way: str) -> Check:
        """ModelNew is called before the change, so that it holds whatever it keeps of weights."""
        self._phase(ORIGINAL, name)
        pair, seed = self._trial.pair, stream(self._seed, name)
        try:
            original = change_weights(deep_copy(pair.original), seed, way)
        except NotForThis as reason:
            return Check(name, True, str(reason), skipped=True)
        except Exception as error:
            return Check(name, True, f"the original refuses: {error}"[:200], skipped=True)
        self._trial.run_new(self._own(0), name)
        self._phase(NEW, name)
        try:
            pair.new.change_weights(seed, way)
        except Raised as error:
            may_refuse = way in _MAY_REFUSE and not self._strict
            self._build_anew()
            return error.refusal(name) if may_refuse else Check(name, False, str(error))
        check = self._trial_of(original).compare(Kind(name, self._own, self._note))
        self._build_anew()
        return check

    def _build_anew(self) -> None:
        """ModelNew with nothing changed or kept, in the state that the original has."""
        pair = self._trial.pair
        pair.new.build(stream(self._seed, "parameters"))
        if self._trial.pristine is not None:
            pair.new.load_state(copy_state(pair.original))

    @property
    def _has_weights(self) -> bool:
        return any(map(is_float, copy_state(self._trial.pair.original).values()))
