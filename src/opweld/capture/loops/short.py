"""A long loop over an axis of the inputs, captured at a few steps.

Export writes a loop out, turn by turn, which takes minutes for some hundred turns. What it writes
for a dozen steps shows all of the loop: captures at two short lengths tell the graph at any length.
A third one, and the operations that the original runs at the length of the example, must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.func import functional_call
from torch.utils import _pytree as pytree

from opweld.errors import CaptureError
from opweld.ir.contract import Capture
from opweld.ir.text import to_text

from ..arguments import Arguments, bind
from ..exporting.recurrent import shapes_of_recurrent_layers
from ..modules.preserve import unchanged
from .counting import LONG_LOOP, LongLoop, Seen
from .extrapolated import Lengths, OtherForm, extrapolated

# Lengths of the captures; the third is predicted from the others.
_SHORT = (12, 13, 15)
_FEWEST_A_STEP = 3
# A capture of more takes minutes; those of the modules that a loop calls take seconds.
MOST_OPERATIONS = 6000

Shortened = Callable[[Arguments], Capture]


def at_length(
    module: nn.Module, mode: str, arguments: Arguments, captured: Shortened, loop: LongLoop
) -> Capture | None:
    """The capture of a call with a long loop, made of what `captured` gives for short calls; None
    where no axis of the inputs tells how many turns the loop has.

    Raises CaptureError where a short call is refused, and where the loop is too long to be captured
    as a whole.
    """
    whole = _seen(module, mode, arguments)
    for size in _sizes(arguments):
        calls = [_cut(module, arguments, size, length) for length in _SHORT]
        if whole is None or not _repeats(module, mode, calls, whole, size):
            continue
        found = _predicted(calls, captured, size)
        if found is not None:
            return found
    if whole is not None and whole.count > MOST_OPERATIONS:
        raise CaptureError(
            f"a call has {whole.count} operations, by the loop of at least {loop.turns} turns",
            where=loop.where,
            next_step="put what a turn does into a submodule",
        )
    return None


def _predicted(calls: list[Arguments], captured: Shortened, size: int) -> Capture | None:
    one, other, third = map(captured, calls)
    try:
        if to_text(extrapolated(one, other, Lengths(*_SHORT))) != to_text(third):
            return None
        return extrapolated(one, third, Lengths(_SHORT[0], _SHORT[2], size))
    except OtherForm:
        return None


def _sizes(arguments: Arguments) -> list[int]:
    """Sizes that may be the number of steps, those of most axes first."""
    counts = Counter(
        size for leaf in arguments.tensors for size in leaf.value.shape if size >= LONG_LOOP
    )
    return [size for size, _ in counts.most_common()]


def _cut(module: nn.Module, arguments: Arguments, size: int, length: int) -> Arguments:
    """The call with axes of that size cut to a length."""

    def shorter(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        for axis in (axis for axis, each in enumerate(value.shape) if each == size):
            value = value.narrow(axis, 0, length)
        return value.clone() if size in value.shape or length in value.shape else value

    args, kwargs = pytree.tree_map(shorter, (arguments.args, arguments.kwargs))
    return bind(module, args, kwargs)


def _repeats(module: nn.Module, mode: str, calls: list[Arguments], whole: Seen, size: int) -> bool:
    """Whether the operations of the whole call are those of the short ones, repeated."""
    one, other = (_seen(module, mode, call) for call in calls[:2])
    if one is None or other is None:
        return False
    lengths = Lengths(_SHORT[0], _SHORT[1], size)
    a_step = (other.count - one.count) // (lengths.other - lengths.one)
    if a_step < _FEWEST_A_STEP:
        return False
    try:
        counted = lengths.number(one.count, other.count)
        kinds = extrapolated([*one.kinds], [*other.kinds], lengths)
    except OtherForm:
        return False
    # Sets: operations of two sizes may be one where these are equal.
    return counted == whole.count and {*kinds} == {*whole.kinds}


def _seen(module: nn.Module, mode: str, arguments: Arguments) -> Seen | None:
    """The operations of a call on tensors without elements, which no buffer and no input shows;
    None where the forward raises.
    """
    seen, fake = Seen(), FakeTensorMode(allow_non_fake_inputs=True)
    without_elements = partial(pytree.tree_map_only, torch.Tensor, fake.from_tensor)
    try:
        with torch.no_grad(), unchanged(module, mode), shapes_of_recurrent_layers(), fake, seen:
            tensors = without_elements({**module.state_dict(), **dict(module.named_buffers())})
            call = without_elements((arguments.args, arguments.kwargs))
            functional_call(module, tensors, *call)
    except CaptureError:
        raise
    except Exception:  # a call of the user's code with inputs that nobody promised it
        return None
    return seen
