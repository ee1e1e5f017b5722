"""Dropouts as export is to see them: nothing where they drop nothing, else one call.

Export would take the call apart, on each device in another way, and other random numbers would be
drawn by the parts.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

# Outside of training they give back their operand itself.
_DROPOUTS = {
    function: inspect.signature(function)
    for function in (
        functional.dropout,
        functional.alpha_dropout,
        functional.dropout1d,
        functional.dropout2d,
        functional.dropout3d,
        functional.feature_alpha_dropout,
    )
}
# The same of torch itself: (input, p, train).
_PLAIN_DROPOUTS = frozenset(
    (torch.dropout, torch.alpha_dropout, torch.feature_dropout, torch.feature_alpha_dropout)
)

_LIBRARY = torch.library.Library("opweld", "DEF")
_LIBRARY.define(
    "dropout(Tensor input, float p, bool train) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded, torch.Tag.pt2_compliant_tag),
)


@torch.library.register_fake("opweld::dropout", lib=_LIBRARY)
def _(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    return torch.empty_like(input)


class WholeDropouts(TorchFunctionMode):
    """Inside, a dropout that drops nothing is its operand, as in eager, and any other is the one
    operator `opweld::dropout`, which stands for `aten::dropout`.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = _arguments_of(function, args, kwargs)
        if given is None:
            return function(*args, **kwargs)
        operand, p, training, in_place = given
        if training is False and 0.0 <= p <= 1.0:
            return operand
        if training is True and 0.0 < p <= 1.0 and not in_place and _is_plain(function):
            return torch.ops.opweld.dropout(operand, float(p), True)
        return function(*args, **kwargs)


def _is_plain(function: Any) -> bool:
    """Whether every element is dropped by itself, and nothing else is done to it."""
    return function in (functional.dropout, torch.dropout)


def _arguments_of(function: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any, bool] | None:
    """Operand, probability, whether in training, and whether in place, of a call of a dropout."""
    if function in _PLAIN_DROPOUTS:
        return (*args, False) if len(args) == 3 else None
    signature = _DROPOUTS.get(function) if callable(function) else None
    if signature is None:
        return None
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    return given["input"], given["p"], given["training"], given["inplace"]
