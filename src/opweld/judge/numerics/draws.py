"""The random numbers that a run draws: recorded, so that a run in another precision gets the same.

A generator gives other numbers to float64 than to float32. A mode of `TorchDispatchMode` sees the
operators that draw from PyTorch's default generators (torch tags them `nondeterministic_seeded`),
with what autocast and composite operators have made of them. It keeps what was drawn in the first
run, and hands it out in the second to the same operators in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.judge.load import Call, is_device_lost, seed_all
from opweld.judge.numerics.compare import is_near
from opweld.judge.tree import tensors

_ATEN: Any = torch.ops.aten
# Operators whose result is what was drawn, whatever the precision.
_RESULT_IS_DRAWN = frozenset(
    (
        _ATEN.bernoulli,
        _ATEN.bernoulli_,
        _ATEN.binomial,
        _ATEN.cauchy_,
        _ATEN.exponential_,
        _ATEN.geometric_,
        _ATEN.log_normal_,
        _ATEN.multinomial,
        _ATEN.normal_,
        _ATEN.poisson,
        _ATEN.rand,
        _ATEN.rand_like,
        _ATEN.randint,
        _ATEN.randint_like,
        _ATEN.randn,
        _ATEN.randn_like,
        _ATEN.random_,
        _ATEN.randperm,
        _ATEN.uniform_,
    )
)
# By so much outputs differ at most that were made from the same random numbers.
_SAME = 1e-2


class OtherDraws(Exception):
    """A run drew random numbers that are not known in the other one; the message names them."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What one call of an operator drew: its result, or the mask of a dropout."""

    operator: Any
    drawn: Tensor


Draws = tuple[Draw, ...]


def run_recorded(
    model: nn.Module, call: Call, seed: int, like: Sequence[Tensor] = ()
) -> tuple[Any, Draws]:
    """The model's outputs for a call from the random state that `seed` gives, and the random
    numbers that it drew for them; `like` are its outputs without recording.

    Raises:
        OtherDraws: an operator draws inside, as a fused attention does, or nobody saw which.
    """
    seed_all(seed)
    recording = _Recording()
    try:
        with recording:
            outputs = model(*call.args, **call.kwargs)
    except OtherDraws:
        raise
    except Exception as error:
        if is_device_lost(error):
            raise
        raise OtherDraws(f"random numbers are not recorded ({error})") from error
    if not torch.equal(recording.state, random_state()):
        raise OtherDraws("random numbers are drawn outside of PyTorch's operators")
    pairs = zip(tensors(outputs), like, strict=False)
    if not all(is_near(one, other, _SAME) for one, other in pairs if one.is_floating_point()):
        raise OtherDraws("other random numbers are drawn where they are recorded")
    return outputs, tuple(recording.draws)


class _Recording(TorchDispatchMode):
    """Keeps what is drawn; `state` is the generators' behind the last operator that did."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[Draw] = []
        self.state = random_state()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if not _may_draw(func):
            return func(*args, **(kwargs or {}))
        before = random_state()
        result = func(*args, **(kwargs or {}))
        after = random_state()
        if torch.equal(before, after):
            return result
        if not torch.equal(before, self.state):
            raise OtherDraws("random numbers are drawn outside of PyTorch's operators")
        self.state = after
        self.draws.append(Draw(func.overloadpacket, _drawn(func, result).detach().clone()))
        return result


class Replaying(TorchDispatchMode):
    """Gives operators that draw what was drawn before, each number `converted`.

    Without draws, one that draws is an error.
    """

    def __init__(self, draws: Draws, converted: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._left = deque(draws)
        self._converted = converted

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not _may_draw(func):
            return func(*args, **kwargs)
        operator = func.overloadpacket
        if self._left and self._left[0].operator is operator:
            return _replayed(operator, self._converted(self._left.popleft().drawn), args)
        before = random_state()
        result = func(*args, **kwargs)
        if not torch.equal(before, random_state()):
            raise OtherDraws(f"{operator.__name__} draws other random numbers")
        return result

    def require_all(self) -> None:
        """Raises:
        OtherDraws: fewer random numbers were drawn than in the run before.
        """
        if self._left:
            raise OtherDraws(f"{self._left[0].operator.__name__} draws no random numbers")


def _may_draw(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


def _drawn(func: Any, result: Any) -> Tensor:
    if func.overloadpacket is _ATEN.native_dropout:
        mask: Tensor = result[1]
        return mask
    if func.overloadpacket in _RESULT_IS_DRAWN and isinstance(result, Tensor):
        return result
    raise OtherDraws(f"{func.overloadpacket.__name__} draws random numbers inside")


def _replayed(operator: Any, drawn: Tensor, args: tuple[Any, ...]) -> Any:
    if operator is _ATEN.native_dropout:
        _require_shape(operator, drawn, args[0])
        scale = 0.0 if args[1] == 1 else 1 / (1 - args[1])
        return args[0] * drawn * scale, drawn
    if operator.__name__.endswith("_"):
        _require_shape(operator, drawn, args[0])
        return args[0].copy_(drawn)
    return drawn.clone()


def _require_shape(operator: Any, drawn: Tensor, wanted: Tensor) -> None:
    if drawn.shape != wanted.shape:
        raise OtherDraws(f"{operator.__name__} draws {list(wanted.shape)}, not {list(drawn.shape)}")


def random_state() -> Tensor:
    """Of the generators that operators draw from by default: the CPU's and the current GPU's."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)
