"""Types of losses that torch's own rules for tensors without elements give otherwise than eager."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._subclasses import FakeTensorMode, fake_impls

_ATEN = torch.ops.aten
# By loss, the operand in whose type eager computes it in place: the others may be wider.
_OPERAND = {
    _ATEN.binary_cross_entropy_with_logits.default: 1,  # torch 2.13 knows it, 2.11 does not
    _ATEN.soft_margin_loss.default: 0,
    _ATEN.huber_loss.default: 0,
}


@contextlib.contextmanager
def types_of_losses() -> Iterator[None]:
    """In it, a loss of tensors without elements has the type that eager gives it: bfloat16, say, of
    bfloat16 logits with a float32 weight, where torch's rule promotes."""
    answers, rules = FakeTensorMode.cache, fake_impls.op_implementations_dict
    for key in [key for key in answers if key.key[0] in _OPERAND]:
        del answers[key]  # of torch's rule
    with contextlib.ExitStack() as end:
        for loss, operand in _OPERAND.items():
            rule = decomposition_table[loss]
            typed = _typed(rule, operand)
            end.callback(decomposition_table.__setitem__, loss, rule)
            decomposition_table[loss] = typed
            if loss not in rules:
                rules[loss] = functools.partial(_by_rule, typed)
                end.callback(rules.pop, loss, None)
        yield


def _typed(rule: Callable[..., Tensor], operand: int) -> Callable[..., Tensor]:
    @functools.wraps(rule)  # torch asks for the name and the module of a rule
    def result(*args: Any, **kwargs: Any) -> Tensor:
        return rule(*args, **kwargs).to(args[operand].dtype)

    return result


def _by_rule(typed: Callable[..., Tensor], mode: Any, _loss: Any, *args: Any, **kwargs: Any) -> Any:
    with mode:
        return typed(*args, **kwargs)
