"""Running the original in another precision than its own.

Parameters, buffers and inputs are converted, and so are the dtypes that its own code names: a
conversion to float32 inside becomes one to float64, say, so that the run has no rounding of its
own. The default dtype follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from opweld.judge.load import Call, is_out_of_memory, seed_all
from opweld.judge.numerics.draws import Draws, OtherDraws, Replaying
from opweld.judge.sparse import deep_copy


class NoReference(Exception):
    """The original does not run in the other precision; the message says why."""


@dataclass(frozen=True, slots=True)
class Precision:
    """A precision to run in: which dtypes become which, and the methods that convert away."""

    default: torch.dtype
    casts: Mapping[torch.dtype, torch.dtype]
    methods: tuple[Callable[..., Any], ...]

    def tensor(self, t: Tensor) -> Tensor:
        """The tensor converted, or itself where its dtype stays."""
        return t.to(self.casts.get(t.dtype, t.dtype))

    def fresh(self, t: Tensor) -> Tensor:
        """The tensor converted, in memory of its own."""
        converted = self.tensor(t)
        return converted.clone() if converted is t else converted

    def model(self, model: nn.Module) -> nn.Module:
        """A deep copy of the model with every parameter and buffer converted, and every tensor that
        is another attribute: what a forward writes to one of these would be lost in a conversion.
        """
        made = deep_copy(model)._apply(self.tensor)
        for module in made.modules():
            self._convert_attributes(vars(module))
        return made

    def _convert_attributes(self, values: dict[Any, Any] | list[Any], depth: int = 4) -> None:
        """Converts the tensors of a dict or list, and of those that are in it, in their places; one
        may hold itself.
        """
        for place, value in values.items() if isinstance(values, dict) else enumerate(values):
            if type(value) is Tensor and value.dtype in self.casts:
                values[place] = self.tensor(value.detach())
            elif type(value) in (dict, list) and depth:
                self._convert_attributes(value, depth - 1)

    def run(
        self, model: nn.Module, call: Call, seed: int, grad: bool = False, draws: Draws = ()
    ) -> Any:
        """Outputs of a converted model for converted inputs, with the random numbers of another run
        of the same call.

        Raises:
            NoReference: the code of the model does not work in this precision, or draws others.
        """
        default = torch.get_default_dtype()
        seed_all(seed)
        torch.set_default_dtype(self.default)
        replaying = Replaying(draws, self.tensor) if draws else None
        try:
            with torch.set_grad_enabled(grad), _Casting(self), replaying or nullcontext():
                outputs = model(*call.args, **call.kwargs)
            if replaying:
                replaying.require_all()
            return outputs
        except OtherDraws as error:
            raise NoReference(f"in another precision, {error}") from error
        except Exception as error:
            if is_out_of_memory(error):
                raise
            name = str(self.default).removeprefix("torch.")
            raise NoReference(f"the original does not run in {name} ({error})") from error
        finally:
            torch.set_default_dtype(default)


FLOAT64 = Precision(
    torch.float64,
    {
        torch.float16: torch.float64,
        torch.bfloat16: torch.float64,
        torch.float32: torch.float64,
        torch.complex32: torch.complex128,
        torch.complex64: torch.complex128,
    },
    (Tensor.float, Tensor.half, Tensor.bfloat16),
)
FLOAT32 = Precision(
    torch.float32,
    {torch.float64: torch.float32, torch.complex128: torch.complex64},
    (Tensor.double,),
)


class _Casting(TorchFunctionMode):
    """Converts every dtype and every tensor that a call is given."""

    def __init__(self, precision: Precision) -> None:
        super().__init__()
        self._precision = precision

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in self._precision.methods:
            return args[0].to(self._precision.default)
        args = tuple(self._argument(value) for value in args)
        kwargs = {name: self._argument(value) for name, value in (kwargs or {}).items()}
        return func(*args, **kwargs)

    def _argument(self, value: Any) -> Any:
        casts = self._precision.casts
        if isinstance(value, torch.dtype):
            return casts.get(value, value)
        if isinstance(value, Tensor) and value.dtype in casts:
            # a constant that the model's code holds outside its parameters
            return self._precision.tensor(value)
        return value
