"""Results that share memory with an operand though their operator's schema does not say so.

Export takes such a result for memory of its own. That is wrong only where somebody writes in place
to one of the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from opweld.errors import OriginalKept

from .origins import where_in

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
# Their operand is a number in the source, which nobody else reads.
_OF_LITERALS = frozenset(("aten::lift_fresh", "aten::lift_fresh_copy"))


class IdleDropouts(TorchFunctionMode):
    """Inside, a dropout that drops nothing is its operand, as in eager."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = _dropout_of(function, args, kwargs)
        return function(*args, **kwargs) if given is None else given


def _dropout_of(function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """The operand of a dropout that is switched off."""
    if function in _PLAIN_DROPOUTS:
        return args[0] if len(args) == 3 and args[2] is False else None
    signature = _DROPOUTS.get(function) if callable(function) else None
    if signature is None:
        return None
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    idle = given["training"] is False and 0.0 <= given["p"] <= 1.0
    return given["input"] if idle else None


def refuse_hidden_aliases(nodes: fx.graph.node_list) -> None:
    """Raises OriginalKept where a tensor is written to whose memory an undeclared view shares."""
    written = {place for node in nodes for place in _written(node)}
    for node in nodes:
        if _hides(node) and _place(node) in written:
            raise OriginalKept(
                f"the forward writes to memory that {node.target} may share", where=where_in([node])
            )


def _written(node: fx.Node) -> Iterator[int]:
    """The places in memory that an operator writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    named = {
        argument.name: value for argument, value in zip(schema.arguments, node.args, strict=False)
    }
    named |= node.kwargs
    for argument in schema.arguments:
        value = named.get(argument.name)
        if argument.alias_info is not None and argument.alias_info.is_write:
            place = _place(value)
            if place is not None:
                yield place


def _hides(node: fx.Node) -> bool:
    """Whether the result has an operand's memory and the schema does not declare it."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.name in _OF_LITERALS:
        return False
    if any(result.alias_info is not None for result in schema.returns):
        return False
    place = _place(node)
    return place is not None and any(_place(given) == place for given in node.all_input_nodes)


def _place(node: Any) -> int | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None
