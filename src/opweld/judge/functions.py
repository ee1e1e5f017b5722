"""Pairs of functions in the place of files with Model and ModelNew.

A function becomes a module without parameters whose forward calls it. Of files these run where
files run; objects of this process (a lambda in a test, say) are judged in this process: that finds
mistakes, and no deceit.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import random
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import nn

from opweld.errors import UserError
from opweld.judge.load import given_modules
from opweld.judge.process.side import Side
from opweld.judge.session import Request, judge
from opweld.judge.tree import tensors
from opweld.judge.values import Event, Judgement, Settings
from opweld.model_file import module_class

_MAX_SEED = 2**53
QUICK = Settings(measure=False)


def check_functions(
    reference: Callable[..., Any],
    candidate: Callable[..., Any],
    inputs: Callable[[], Any] | list[Any] | tuple[Any, ...],
    settings: Settings = QUICK,
) -> Judgement:
    """Judge one callable against another, both in this process, on the inputs' device.

    `inputs` makes the arguments of one call, a list, tuple or dictionary with at least one tensor;
    called again, it may draw others. A list or tuple itself stands for calls with the same values.
    Callables that are modules are compared with their parameters, which must have the same names.

    The judgement is that of `check`, without the sandbox and without figures of time unless the
    settings ask for some. Random generators are left as they were.

    Raises:
        UserError: one of them is not callable, or the reference cannot serve as a measure.
    """
    for what, function in (("reference", reference), ("candidate", candidate)):
        if not callable(function):
            raise UserError(f"the {what} is a value of type {type(function).__name__}, no function")
    make = inputs if callable(inputs) else lambda: copy.deepcopy(inputs)
    seed = secrets.randbelow(_MAX_SEED) if settings.seed is None else settings.seed
    model = _module("Model", reference, make, candidate)
    new = _module("ModelNew", candidate, make, reference)
    with given_modules(model, new), _state_kept():
        found = tensors([make()])
        there = replace(settings, device=found[0].device.type if found else "cpu")
        request = Request(_file_of(reference), _file_of(candidate), there, seed)
        return judge(request, _Nobody(), Side())


def assert_equivalent(
    reference: Callable[..., Any],
    candidate: Callable[..., Any],
    inputs: Callable[[], Any] | list[Any] | tuple[Any, ...],
    **settings: Any,
) -> Judgement:
    """`check_functions` as an assertion; `settings` are fields of `Settings`, such as `scope`.

    Raises:
        AssertionError: the candidate is not equivalent; the message has each check that failed.
        UserError: as `check_functions`.
    """
    __tracebackhide__ = True
    judgement = check_functions(reference, candidate, inputs, replace(QUICK, **settings))
    verdict = judgement.verdict
    if verdict.passed:
        return judgement
    failures = "".join(f"\n  {check.name}: {check.detail}" for check in verdict.failures)
    raise AssertionError(f"not equivalent: {verdict.reason} (seed {judgement.seed}){failures}")


def _module(
    name: str, function: Callable[..., Any], make: Callable[[], Any], like: Callable[..., Any]
) -> ModuleType:
    module = ModuleType(name)
    setattr(module, name, module_class(name, function, nn.Module, like))
    module.get_inputs = make  # type: ignore[attr-defined]
    module.get_init_inputs = list  # type: ignore[attr-defined]
    return module


def _file_of(function: Callable[..., Any]) -> str:
    """The file whose lines an error is placed in."""
    with contextlib.suppress(TypeError):
        return inspect.getsourcefile(inspect.unwrap(function)) or "function"
    return f"{type(function).__name__}"


@contextlib.contextmanager
def _state_kept() -> Iterator[None]:
    """Random generators, and torch's default dtype, are afterwards as they were."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    numpy, python = sys.modules.get("numpy"), random.getstate()
    state = numpy.random.get_state() if numpy else None
    dtype = torch.get_default_dtype()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        torch.set_default_dtype(dtype)
        if numpy:
            numpy.random.set_state(state)


class _Nobody:
    """Whoever follows a judgement, and does nothing with it."""

    def phase(self, who: str, what: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def partial(self, judgement: Judgement) -> None: ...
