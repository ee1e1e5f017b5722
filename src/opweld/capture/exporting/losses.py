"""Types of losses that torch's own rules for tensors without elements give otherwise than eager."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._subclasses import FakeTensorMode

_LOGITS = torch.ops.aten.binary_cross_entropy_with_logits.default


@contextlib.contextmanager
def types_of_losses() -> Iterator[None]:
    """In it, a cross-entropy of logits has the type of its target, as in eager, which computes it
    in place: torch 2.11 says float32 of a bfloat16 loss with a float32 weight."""
    if _has_type_of_target():
        yield
        return
    rule = decomposition_table[_LOGITS]

    @functools.wraps(rule)  # torch asks for the name and the module of a rule
    def of_target(x: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return rule(x, target, *args, **kwargs).to(target.dtype)

    answers = FakeTensorMode.cache
    for key in [key for key in answers if key.key[0] is _LOGITS]:
        del answers[key]  # those of the rule
    decomposition_table[_LOGITS] = of_target
    try:
        yield
    finally:
        decomposition_table[_LOGITS] = rule


@functools.cache
def _has_type_of_target() -> bool:
    """Whether this torch's rule does, as that of 2.13."""
    x = torch.empty(1, dtype=torch.bfloat16, device="meta")
    return bool(_LOGITS(x, x, x.float()).dtype == x.dtype)
