"""Who is trained: the original, in float64 and as it is, and ModelNew in its process.

A trainee's weights are the judge's, in float64, and so is the optimizer. The model is given them in
its own dtype before each step, and gives outputs and gradients: what is believed of ModelNew are
these bytes, as in any other check.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.load import Call, brief
from opweld.judge.numerics.differentiate import (
    FLAGS,
    Backward,
    Graphs,
    NoGradients,
    differentiate,
    record,
)
from opweld.judge.numerics.outputs import mismatch
from opweld.judge.numerics.precision import FLOAT64, NoReference
from opweld.judge.process.leaf import RemoteLeaf
from opweld.judge.process.protocol import How
from opweld.judge.verify.run import Run, outputs_of, state_tensors
from opweld.judge.verify.weights import State, load_state

MOMENTUM = 0.9
INPUT, GRADIENT = "input {number}", "gradient of "
# By name, float64: parameters, or `input 0` and so on.
Weights = dict[str, Tensor]


class NotTrained(Exception):
    """There is nothing to be compared; the message says why."""


class Unlike(Exception):
    """ModelNew returns something else than the original; the message is a clause."""


@dataclass(frozen=True, slots=True)
class Start:
    """What all sides begin with: the state of a model, and of it what is trained.

    Where `of_inputs`, the model has no parameters to be trained, and its inputs are.
    """

    state: State
    weights: Weights
    of_inputs: bool

    @property
    def how(self) -> Backward:
        """What gradients are asked for."""
        return Backward(inputs=self.of_inputs)


class Trainee:
    """A side with weights of its own, trained by stochastic gradient descent with momentum."""

    def __init__(self, start: Start, weights: Weights | None = None) -> None:
        self.start = start
        self.weights = {n: w.clone() for n, w in (weights or start.weights).items()}
        self._velocity = {name: torch.zeros_like(w) for name, w in self.weights.items()}

    def forward(self, call: Call, seed: int) -> list[Tensor]:
        """The tensors among the outputs, for inputs in the model's own dtypes."""
        raise NotImplementedError

    def backward(self, gradients: list[Tensor | None]) -> Mapping[str, Tensor]:
        """The gradients of the weights, by name, for those of the outputs of the last forward."""
        raise NotImplementedError

    def learn(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        """One step of the optimizer; a weight without a gradient stays."""
        for name, weight in self.weights.items():
            velocity = self._velocity[name].mul_(MOMENTUM)
            if name in gradients:
                velocity.add_(gradients[name])
            weight.sub_(velocity, alpha=rates[name])

    def with_inputs(self, call: Call) -> Call:
        """The call in memory of its own, with the inputs that are trained in their places."""
        numbers = iter(range(len(call.tensors())))

        def change(t: Tensor) -> Tensor:
            trained = self.weights.get(INPUT.format(number=next(numbers)))
            return t.clone() if trained is None or not self.start.of_inputs else trained.to(t.dtype)

        return call.map(change)


class Local(Trainee):
    """The original, here. `model` is lent for a step, and may be that of other trainees.

    With `exact`, it is the model in float64. What is `under`, a context, is in force around it.
    """

    def __init__(
        self,
        model: nn.Module,
        start: Start,
        weights: Weights | None = None,
        exact: bool = False,
        under: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        super().__init__(start, weights)
        self._model, self._exact, self._under = model, exact, under
        self._buffers = buffers_of(model, start.state)
        self._graphs: Graphs | None = None
        self.last: Run | None = None

    @property
    def draws_random(self) -> bool:
        """Whether the last forward drew random numbers."""
        return self._graphs is not None and self._graphs.draws_random

    def forward(self, call: Call, seed: int) -> list[Tensor]:
        """Raises:
        NoReference: the original does not run in float64.
        NotTrained: it does not run, or no output has a gradient.
        """
        self._put()
        given = self.with_inputs(call)
        forward: Callable[[Call], Any] | None = None
        if self._exact:
            given = given.map(FLOAT64.tensor)

            def forward(call: Call) -> Any:
                return FLOAT64.run(self._model, call, seed, grad=True)

        with self._asked_of_original(), self._under():
            self._graphs = record(self._model, [given], seed, self.start.how, forward)
        if self._buffers:
            self._buffers = {n: t.clone() for n, t in _held(self._model) if n in self._buffers}
        return self._graphs.outputs[0]

    def backward(self, gradients: list[Tensor | None]) -> Mapping[str, Tensor]:
        assert self._graphs is not None
        with self._asked_of_original(), self._under():
            self.last = differentiate(self._graphs, [[gradients]], self.start.how)
        return by_name(self.last, self.weights)

    @contextlib.contextmanager
    def _asked_of_original(self) -> Iterator[None]:
        try:
            yield
        except NoReference:
            raise
        except NoGradients as error:
            raise NotTrained("the original has no gradients") from error
        except Exception as error:
            if self._exact:
                raise NoReference(f"it is not trained in float64: {brief(error)}") from error
            raise NotTrained(f"the original is not trained: {brief(error, 160)}") from error

    def _put(self) -> None:
        """The weights, and the buffers as the last step left them, into the model."""
        parameters = dict(self._model.named_parameters())
        with torch.no_grad():
            for name, weight in self.weights.items():
                if name in parameters:
                    parameters[name].copy_(weight)
        if self._buffers:
            load_state(self._model, self._buffers)


class Candidate(Trainee):
    """ModelNew, asked through its side. `like` is the original's run of the same call, `beside` the
    trainee whose gradients say which there are.
    """

    def __init__(self, side: Any, start: Start, names: dict[str, str], like: Run, beside: Local):
        super().__init__(start)
        self._side, self._names, self._like, self._beside = side, names, like, beside
        self._state = dict(start.state)
        self._asked: tuple[Call, int] | None = None
        self._changed: State = {}

    def forward(self, call: Call, seed: int) -> list[Tensor]:
        """Raises:
        Raised: ModelNew does, or writes where it must not.
        Unlike: it returns something else than the original.
        """
        self._state |= {
            name: self.weights[first].to(self._state[name].dtype)
            for name, first in self._names.items()
        }
        self._side.load_state(self._state)
        self._asked = self.with_inputs(call), seed
        how = How(seed, grad=True, watch_state=bool(self._like.changed_state))
        found = self._side.run(self._asked[0].map(torch.clone), how, self._like)
        require_alike(found, self._like)
        state = found.leaves[len(found.leaves) - len(found.changed_state) :]
        self._changed = dict(zip(found.changed_state, map(_whole, state), strict=True))
        leaves = outputs_of(found).leaves
        return [_whole(leaf) for leaf in leaves if isinstance(leaf, (Tensor, RemoteLeaf))]

    def backward(self, gradients: list[Tensor | None]) -> Mapping[str, Tensor]:
        """Raises:
        Raised: ModelNew does, or has no gradients.
        Unlike: they are not of the original's shapes and dtypes.
        """
        assert self._asked is not None and self._beside.last is not None
        call, seed = self._asked
        if self._changed:
            self._side.load_state(self._state)  # the forward runs once more
        asked = [call], [[gradients]], seed, self.start.how, self._beside.last
        found = self._side.gradients(*asked)
        require_alike(found, self._beside.last)
        self._state |= self._changed
        return by_name(found, self.weights)


def require_alike(new: Run, original: Run) -> None:
    """Raises:
    Unlike: a difference that is no matter of precision.
    """
    if clause := mismatch(new, original):
        raise Unlike(clause)


def by_name(run: Run, weights: Weights) -> dict[str, Tensor]:
    """The gradients of the weights among the leaves of a run, in float64."""
    pairs = zip(run.names, run.leaves, strict=True)
    named = ((name.removeprefix(GRADIENT), leaf) for name, leaf in pairs if name != FLAGS)
    return {name: _whole(leaf).double() for name, leaf in named if name in weights}


def trained_of(model: nn.Module, call: Call) -> tuple[Weights, bool]:
    """In float64, what of a model is trained, and whether these are the inputs of a call."""
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    floats = {n: p for n, p in parameters.items() if p.is_floating_point()}
    if floats:
        return _wide(floats), False
    given = enumerate(call.tensors())
    return _wide({INPUT.format(number=i): t for i, t in given if t.is_floating_point()}), True


def first_names(model: nn.Module, weights: Weights) -> dict[str, str]:
    """For the entries of the state that are trained the names that they have as weights: of one
    parameter by several names, the first.
    """
    first = {id(p): name for name, p in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[id(p)] for name, p in every if first[id(p)] in weights}


def buffers_of(model: nn.Module, state: State) -> State:
    """Of a state what is no parameter."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {name: t.clone() for name, t in state.items() if name not in parameters}


def _held(model: nn.Module) -> Sequence[tuple[str, Tensor]]:
    return [(name, t.detach()) for name, t in state_tensors(model)]


def _whole(leaf: Any) -> Tensor:
    """A result here: a large one may still be where it was made."""
    return leaf[()] if isinstance(leaf, RemoteLeaf) else leaf


def _wide(named: Mapping[str, Tensor]) -> Weights:
    return {name: t.detach().double().clone() for name, t in named.items()}
