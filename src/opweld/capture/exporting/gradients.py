"""Gradients of the user's own making, which a captured graph loses."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import autograd, fx
from torch.export import ExportedProgram

from opweld.errors import CaptureError, OriginalKept, Where


@dataclass(slots=True)
class Asked:
    """What a forward asks of autograd: gradients of what it computes, which export takes for
    constants, or that gradients are recorded whatever its caller has.
    """

    takes_gradients: bool = False
    switches_on: bool = False

    def refuse_taken(self, where: Where | None = None) -> None:
        """Raises CaptureError where gradients are taken."""
        if self.takes_gradients:
            raise CaptureError(
                "the forward takes gradients of what it computes, which torch.export cannot hold",
                where=where,
                next_step='use torch.compile(model, backend="opweld"), which makes kernels for what'
                " stands around them",
            )


@contextlib.contextmanager
def noting_gradients() -> Iterator[list[str]]:
    """Yields why a graph's gradients are not the forward's, as the forward is run in between.

    Export traces through the forward of a torch.autograd.Function and drops its backward, and
    leaves no trace of inference mode, nor of `no_grad` in a part under an autocast of its own.
    """
    function, mode, off = torch.autograd.Function, torch.inference_mode, torch.set_grad_enabled
    applied, entered, switched = function.__dict__["apply"], mode.__enter__, off.__init__
    outside, found = _autocast_state(), list[str]()

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        run = applied.__get__(None, cls)
        if cls.__module__.startswith("torch."):
            return run(*args, **kwargs)
        found.append(f"the forward applies {cls.__qualname__}, which has its own gradient")
        try:
            return run(*args, **kwargs)
        except Exception as error:  # it is made for tensors with memory, say
            raise OriginalKept(found[-1]) from error

    def enter(self: torch.inference_mode) -> None:
        if self.mode:
            found.append("the forward switches to inference mode")
        entered(self)

    def switch(self: torch.set_grad_enabled, mode: bool) -> None:  # `no_grad` asks for it, too
        if not mode and _autocast_state() != outside:
            found.append("the forward switches gradients off under an autocast of its own")
        switched(self, mode)

    with (
        mock.patch.object(function, "apply", classmethod(apply)),
        mock.patch.object(mode, "__enter__", enter),
        mock.patch.object(off, "__init__", switch),
    ):
        yield found


@contextlib.contextmanager
def noting_what_is_asked() -> Iterator[Asked]:
    """Yields what the forward asks of autograd, as it is run in between."""
    asked, on, off = Asked(), torch.enable_grad, torch.set_grad_enabled
    engine, entered, switched = autograd._engine_run_backward, on.__enter__, off.__init__

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        asked.takes_gradients = True
        return engine(*args, **kwargs)

    def enter(self: torch.enable_grad) -> None:
        asked.switches_on |= _is_the_user_s(sys._getframe(1))
        entered(self)

    def switch(self: torch.set_grad_enabled, mode: bool) -> None:
        asked.switches_on |= mode and _is_the_user_s(sys._getframe(1))
        switched(self, mode)

    with (
        mock.patch.object(autograd, "_engine_run_backward", run_backward),
        mock.patch.object(on, "__enter__", enter),
        mock.patch.object(off, "__init__", switch),
    ):
        yield asked


def _is_the_user_s(frame: FrameType) -> bool:
    """Whether the frame is of no file of torch, but for the one that makes decorators."""
    name = str(frame.f_globals.get("__name__"))
    return not name.startswith("torch.") or name == torch.utils._contextlib.__name__


def refuse_results_with_gradients(program: ExportedProgram) -> None:
    """Raises OriginalKept where a result requires gradients though the caller asks for none.

    `program` is exported without gradients: of regions that switch them on nothing is left in one
    that is exported with them. Kernels are called without a graph behind them then.
    """
    region = torch.ops.higher_order.wrap_with_set_grad_enabled
    output = next(node for node in program.graph.nodes if node.op == "output")
    for value in output.args[0]:
        if not isinstance(value, fx.Node) or value.target is not operator.getitem:
            continue
        made = value.args[0]
        if isinstance(made, fx.Node) and made.target is region and made.args[0]:
            raise OriginalKept("the forward switches gradients on for what it returns")


def _autocast_state() -> tuple[tuple[bool, torch.dtype], ...]:
    kinds = ("cpu", "cuda")
    return tuple((torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds)


def said_of(found: list[str]) -> str:
    """All reasons, each once."""
    return "; ".join(dict.fromkeys(found))
