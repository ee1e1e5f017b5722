"""Gradients of the user's own making, which a captured graph loses."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import autograd, fx
from torch.export import ExportedProgram

from opweld.errors import CaptureError, OriginalKept


@dataclass(slots=True)
class GradientNotes:
    """`reasons` say why a graph's gradients are not the forward's; `switches_on`: it has gradients
    recorded whatever its caller has.
    """

    reasons: list[str] = field(default_factory=list)
    switches_on: bool = False

    def said(self) -> str:
        """All reasons, each once."""
        return "; ".join(dict.fromkeys(self.reasons))


@contextlib.contextmanager
def noting_gradients() -> Iterator[GradientNotes]:
    """Yields what the forward does with gradients, as it is run in between.

    Export traces through the forward of a torch.autograd.Function and drops its backward, and
    leaves no trace of inference mode, nor of `no_grad` in a part under an autocast of its own. Of
    regions that switch gradients on it keeps nothing where they are on already. It takes what a
    forward differentiates for a constant.

    Raises in between:
        CaptureError: the forward takes gradients.
    """
    function, mode = torch.autograd.Function, torch.inference_mode
    on, either = torch.enable_grad, torch.set_grad_enabled
    applied, inferred = function.__dict__["apply"], mode.__enter__
    entered, switched = on.__enter__, either.__init__
    outside, notes = _autocast_state(), GradientNotes()

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        run = applied.__get__(None, cls)
        if cls.__module__.startswith("torch."):
            return run(*args, **kwargs)
        notes.reasons.append(f"the forward applies {cls.__qualname__}, which has its own gradient")
        try:
            return run(*args, **kwargs)
        except Exception as error:  # it is made for tensors with memory, say
            raise OriginalKept(notes.reasons[-1]) from error

    def infer(self: torch.inference_mode) -> None:
        if self.mode:
            notes.reasons.append("the forward switches to inference mode")
        inferred(self)

    def enter(self: torch.enable_grad) -> None:
        notes.switches_on |= _is_the_user_s(sys._getframe(1))
        entered(self)

    def switch(self: torch.set_grad_enabled, mode: bool) -> None:  # `no_grad` asks for it, too
        if mode:
            notes.switches_on |= _is_the_user_s(sys._getframe(1))
        elif _autocast_state() != outside:
            notes.reasons.append("the forward switches gradients off under an autocast of its own")
        switched(self, mode)

    with (
        mock.patch.object(function, "apply", classmethod(apply)),
        mock.patch.object(mode, "__enter__", infer),
        mock.patch.object(on, "__enter__", enter),
        mock.patch.object(either, "__init__", switch),
        mock.patch.object(autograd, "_engine_run_backward", _refuse_backward),
    ):
        yield notes


def _refuse_backward(*_: Any, **__: Any) -> None:
    raise CaptureError(
        "the forward takes gradients of what it computes, which torch.export cannot hold",
        next_step='use torch.compile(model, backend="opweld"), which makes kernels for what stands'
        " around them",
    )


def _is_the_user_s(frame: FrameType) -> bool:
    """Whether the frame is of no file of torch, but for the one that makes decorators."""
    name = str(frame.f_globals.get("__name__"))
    return not name.startswith("torch.") or name == torch.utils._contextlib.__name__


def refuse_results_with_gradients(program: ExportedProgram) -> None:
    """Raises OriginalKept where a result requires gradients though the caller asks for none, when
    kernels have no graph behind them. `program` is exported with gradients off, so its regions are
    those that switch them on.
    """
    region = torch.ops.higher_order.wrap_with_set_grad_enabled
    output = next(node for node in program.graph.nodes if node.op == "output")
    for value in output.args[0]:
        if not isinstance(value, fx.Node) or value.target is not operator.getitem:
            continue
        made = value.args[0]
        if isinstance(made, fx.Node) and made.target is region:
            raise OriginalKept("the forward switches gradients on for what it returns")


def _autocast_state() -> tuple[tuple[bool, torch.dtype], ...]:
    kinds = ("cpu", "cuda")
    return tuple((torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds)
