"""The original in float64: what the errors of both sides are measured against.

The inputs are the rounded ones, up-cast. Conversions to a lower floating-point type that the
original's own code asks for become conversions to float64, and so does the default dtype, so that
the run has no rounding of its own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from opweld.judge.load import Call, is_out_of_memory, leading_size, seed_all
from opweld.judge.memory import available_bytes
from opweld.judge.run import Run, collect
from opweld.judge.tree import tensors

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_NARROWING = (Tensor.float, Tensor.half, Tensor.bfloat16)
# Temporaries of the float64 run, as a multiple of inputs, parameters and outputs together.
_HEADROOM = 3
# On the CPU fresh memory costs more than arithmetic: elements of inputs and outputs above which
# rows go in blocks even where all would fit.
WHOLE_ELEMS = {"cpu": 2**22}


class NoReference(Exception):
    """The original does not run in float64; the message says why."""


@dataclass(frozen=True, slots=True)
class Block:
    """Float64 leaves in the order of a `Run`'s: of all rows (`rows` None), or of some."""

    rows: slice | None
    leaves: list[Any]


class _InFloat64(TorchFunctionMode):
    """Turns every dtype argument below float64 into float64."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in _NARROWING:
            return args[0].double()
        args = tuple(_widen_argument(value) for value in args)
        kwargs = {name: _widen_argument(value) for name, value in (kwargs or {}).items()}
        return func(*args, **kwargs)


def widen(t: Tensor) -> Tensor:
    """The tensor in float64 or complex128, or as it is."""
    return t.to(_WIDER.get(t.dtype, t.dtype))


def to_float64(model: nn.Module) -> nn.Module:
    """A deep copy of the model with every parameter and buffer widened."""
    return copy.deepcopy(model)._apply(widen)


def run_float64(model: nn.Module, call: Call, seed: int, grad: bool = False) -> Any:
    """Outputs of a widened model for widened inputs.

    Raises:
        NoReference: the code of the model does not work in float64.
    """
    default = torch.get_default_dtype()
    seed_all(seed)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.set_grad_enabled(grad), _InFloat64():
            return model(*call.args, **call.kwargs)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise NoReference(f"the original does not run in float64 ({error})") from error
    finally:
        torch.set_default_dtype(default)


class Reference:
    """Float64 runs of one model, whole where memory allows and by rows where it does not."""

    def __init__(self, model: nn.Module, device: torch.device, seed: int) -> None:
        self._model = model
        self._device = device
        self._seed = seed
        self._wide: nn.Module | None = None
        self._by_row: bool | None = None

    def refresh(self) -> None:
        """Take the parameters, buffers and the mode anew: they have changed."""
        self._wide = self._by_row = None

    def blocks(self, call: Call, run: Run) -> Iterator[Block]:
        """Float64 leaves for the leaves of `run`, which the model gave for `call`.

        Raises:
            NoReference: not in float64, or not in the memory there is.
        """
        if self._is_large(call, run) and self._rows_are_independent(call, run):
            yield from self._row_blocks(call, run)
            return
        if self._needed_bytes(call, run) > available_bytes(self._device):
            raise NoReference("the float64 run does not fit in memory, nor row by row")
        yield Block(None, self._run(call, run))

    def _is_large(self, call: Call, run: Run) -> bool:
        """Whether blocks of rows are better than the whole, or the only way."""
        limit = WHOLE_ELEMS.get(self._device.type, math.inf)
        fits = self._needed_bytes(call, run) < available_bytes(self._device)
        return _row_elems(call, run) > limit or not fits

    def _row_blocks(self, call: Call, run: Run) -> Iterator[Block]:
        size = leading_size(call) or 1
        fitting = available_bytes(self._device) // (16 * _HEADROOM)
        limit = min(fitting, WHOLE_ELEMS.get(self._device.type, fitting))
        step = max(1, size * limit // max(1, _row_elems(call, run)))
        for start in range(0, size, step):
            rows = slice(start, min(start + step, size))
            yield Block(rows, self._run(take_rows(call, rows), run))

    def _rows_are_independent(self, call: Call, run: Run) -> bool:
        """Whether a row's result is the same without the other rows, tried on two."""
        if self._by_row is None:
            size = leading_size(call)
            by_row = bool(size) and not run.changed_inputs and not run.changed_state
            by_row = by_row and all(t.dim() and t.shape[0] == size for t in tensors(run.leaves))
            self._by_row = by_row and size != 1 and self._same_alone(call, run)
        return self._by_row

    def _same_alone(self, call: Call, run: Run) -> bool:
        try:
            both = self._run(take_rows(call, slice(0, 2)), run)
            alone = self._run(take_rows(call, slice(1, 2)), run)
        except NoReference:
            return False
        return all(
            torch.allclose(b[1:2], a, rtol=1e-9, atol=1e-12, equal_nan=True)
            for b, a in zip(tensors(both), tensors(alone), strict=True)
        )

    def _run(self, call: Call, run: Run) -> list[Any]:
        try:
            return self._run_wide(call, run)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise NoReference("the float64 run does not fit in memory") from error

    def _run_wide(self, call: Call, run: Run) -> list[Any]:
        if self._wide is None:
            self._wide = to_float64(self._model)
        wide, wide_call = self._wide, call.map(_widen_copy)
        outputs = run_float64(wide, wide_call, self._seed)
        if run.changed_state:
            self.refresh()
        return collect(outputs, wide_call, wide, run.changed_inputs, run.changed_state)

    def _needed_bytes(self, call: Call, run: Run) -> int:
        held = (*call.tensors(), *tensors(run.leaves), *self._model.parameters())
        return 8 * _HEADROOM * sum(t.numel() for t in held)


def _row_elems(call: Call, run: Run) -> int:
    return sum(t.numel() for t in (*call.tensors(), *tensors(run.leaves)))


def take_rows(call: Call, rows: slice) -> Call:
    """Some rows of every tensor that has the leading size of the first."""
    size = leading_size(call)
    return call.map(lambda t: t[rows] if t.dim() and t.shape[0] == size else t)


def _widen_copy(t: Tensor) -> Tensor:
    wide = widen(t)
    return wide.clone() if wide is t else wide


def _widen_argument(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return _WIDER.get(value, value)
    if isinstance(value, Tensor) and value.dtype in _WIDER:
        # a constant that the model's code holds outside its parameters
        return widen(value)
    return value
