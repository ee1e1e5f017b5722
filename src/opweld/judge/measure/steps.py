"""Steps of training as timed calls: a forward with gradients, and its backward.

The optimizer, which is the same on all sides, is left out. Gradients of the results are numbers
that any process makes alike, so that those of a timed step can be compared with eager's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.load import Call
from opweld.judge.measure.clock import Action
from opweld.judge.numerics.precision import FLOAT64, NoReference
from opweld.judge.tree import tensors
from opweld.judge.values import Check
from opweld.judge.verify.run import Run

NAME = "gradients of timed steps"
# Of the norm of eager's gradient: what is timed is that step, whose accuracy other checks grade.
_MOST_APART = 1e-2
# Farther apart they may be where eager's are as far from float64's: TF32 in many layers, with relus
# that fall to the other side, is 3 % of a ResNet-18's norm and 60 % of a ResNet-50's.
_OF_EAGERS_ERROR = 2.0
# Of eager's norm; and of the gradients those that chance may put farther away.
_LEAST_SIZE, _EXCEPTIONS = 0.5, 0.1
# Gradients that are zero but for roundings are no scale.
_LEAST_NORM = 1e-3

_MAX_ELEMS = 2**22

_ENABLE_GRAD: Any = torch.enable_grad
_GRAD: Any = torch.autograd.grad


def stepping(model: Any) -> Callable[[Call], Action]:
    """What makes a step of a call; nothing of it is timed but the step.

    Gradients are those of the parameters, or of the floating-point inputs where there are none.
    """
    outgoing: list[list[Tensor]] = []

    def ready(call: Call) -> Action:
        leaves = leaves_of(model, call)
        if not outgoing:
            with _ENABLE_GRAD():
                outgoing.append(given_gradients(model(*call.args, **call.kwargs)))

        def step() -> list[Tensor]:
            with _ENABLE_GRAD():
                results = differentiated(model(*call.args, **call.kwargs))
                found = _GRAD(results, leaves, outgoing[0], allow_unused=True)
            return [gradient for gradient in found if gradient is not None]

        return step

    return ready


def leaves_of(model: Any, call: Call) -> list[Tensor]:
    """What a step makes gradients of."""
    own = model.parameters() if hasattr(model, "parameters") else ()
    parameters = [each for each in own if each.requires_grad]
    if parameters:
        return parameters
    given = {id(t): t for t in call.tensors() if t.is_floating_point() and t.is_leaf}
    return [t.requires_grad_() for t in given.values()]


def differentiated(outputs: Any) -> list[Tensor]:
    """The results that have gradients, each once."""
    found = {id(t): t for t in tensors(outputs) if t.requires_grad}
    return list(found.values())


def given_gradients(outputs: Any) -> list[Tensor]:
    """Of -1 to 1, the same for the same shapes."""
    return [
        torch.linspace(-1.0, 1.0, t.numel(), dtype=t.dtype, device=t.device).view(t.shape)
        for t in differentiated(outputs)
    ]


def can_step(model: Any, call: Call) -> bool:
    """Whether a call has something to differentiate."""
    with _ENABLE_GRAD():
        leaves = leaves_of(model, call)
        return bool(leaves) and bool(differentiated(model(*call.args, **call.kwargs)))


class Gradients:
    """Compares the gradients of timed steps of ModelNew with eager's on the same inputs."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self._found: list[Check] = []

    def add(self, call: Call, run: Run) -> None:
        """The results of one step of ModelNew, on the inputs of `call`."""
        ready = stepping(self._original)
        first, second = ready(call)(), ready(call)()
        if apart(second, first) > _MOST_APART:
            self._found.append(Check(NAME, True, "eager's own differ from step to step", True))
            return
        if [getattr(leaf, "shape", None) for leaf in run.leaves] != [t.shape for t in first]:
            self._found.append(Check(NAME, False, "they are not of the parameters' shapes"))
            return
        rows = [_some_rows(each) for each in first]
        ours = [leaf[at].to(own) for leaf, at, own in zip(run.leaves, rows, first, strict=True)]
        eager = [own[at] for own, at in zip(first, rows, strict=True)]
        found = apart(ours, eager)
        told = f"{found:.2g} of their norm from eager's"
        if found <= _MOST_APART:
            self._found.append(Check(NAME, True, told))
            return
        try:
            wide = stepping(_Wide(self._original))(call.map(_wide_leaf))()
        except (NoReference, RuntimeError) as error:
            self._found.append(Check(NAME, False, f"{told}; without a float64 run: {error}"))
            return
        exact = [each[at] for each, at in zip(wide, rows, strict=True)]
        told += f", which are {apart(eager, exact):.2g} from float64's"
        self._found.append(Check(NAME, are_as_exact(ours, eager, exact), told))

    def check(self) -> Check:
        """The first that failed, or one of the others."""
        if not self._found:
            return Check(NAME, True, "no step was looked at", True)
        return next((each for each in self._found if not each.passed), self._found[0])


def _some_rows(t: Tensor) -> tuple[slice, ...]:
    """An index: of large tensors some rows, which are drawn now."""
    if t.numel() <= _MAX_ELEMS:
        return ()
    count = max(1, _MAX_ELEMS * t.shape[0] // t.numel())
    start = secrets.randbelow(t.shape[0] - count + 1)
    return (slice(start, start + count),)


def apart(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """The distance of all gradients from others, over the norm of the latter."""
    pairs = list(zip(ours, theirs, strict=True))
    squares = sum(_square(one, other) for one, other in pairs)
    scale = sum(_square(other, torch.zeros_like(other)) for _, other in pairs)
    return float((squares / max(scale, _LEAST_NORM**2)) ** 0.5)


class _Wide:
    """A model that runs in float64, from its own parameters."""

    def __init__(self, model: nn.Module) -> None:
        self._model = FLOAT64.model(model)

    def parameters(self) -> Iterator[Tensor]:
        return self._model.parameters()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return FLOAT64.run(self._model, Call(args, kwargs), 0, grad=True)


def _wide_leaf(t: Tensor) -> Tensor:
    return FLOAT64.fresh(t.detach()).requires_grad_(t.requires_grad)


def are_as_exact(ours: Sequence[Tensor], eager: Sequence[Tensor], exact: Sequence[Tensor]) -> bool:
    """Whether gradients are no more than twice as far from float64's as eager's are, and no less
    than half as large: all together, and nine of ten one by one.

    Where eager's are mostly error, zeros would be near enough.
    """
    each = [
        _is_as_exact([own], [other], [right])
        for own, other, right in zip(ours, eager, exact, strict=True)
    ]
    return _is_as_exact(ours, eager, exact) and each.count(False) <= _EXCEPTIONS * len(each)


def _is_as_exact(ours: Sequence[Tensor], eager: Sequence[Tensor], exact: Sequence[Tensor]) -> bool:
    may_be = max(_OF_EAGERS_ERROR * apart(eager, exact), _MOST_APART)
    return apart(ours, exact) <= may_be and _norm(ours) >= _LEAST_SIZE * _norm(eager)


def _norm(gradients: Sequence[Tensor]) -> float:
    return float(sum(_square(each, torch.zeros_like(each)) for each in gradients)) ** 0.5


def _square(one: Tensor, other: Tensor) -> float:
    """Of the difference; NaN and infinities are numbers that count."""
    one, other = (torch.nan_to_num(each.detach().double(), 7.0, 8.0, 9.0) for each in (one, other))
    return float((one - other).square().sum())
