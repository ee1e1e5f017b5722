"""Calls that stay PyTorch's, with the reason that the plan prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from opweld.errors import CaptureError, OriginalKept, Where
from opweld.ir.attrs import CallAttrs, Operand, TorchLiteral
from opweld.ir.expr import Expr
from opweld.ir.graph import Node
from opweld.ir.types import TensorType

from .build import Builder
from .call import RunTimeScalar
from .ops.draws import draws
from .sizes import Symbols

_FAMILIES = {
    "a matrix product is the library's": """
        linear matmul mm bmm addmm baddbmm einsum mv dot addmv bilinear linalg_vecdot tensordot
        scaled_dot_product_attention chain_matmul cdist""",
    "a convolution is the library's": """
        conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d conv_transpose3d""",
    "a reduction is the library's": """
        sum mean amax amin max min prod var std argmax argmin softmax _softmax log_softmax
        _log_softmax logsumexp norm all any linalg_vector_norm layer_norm native_layer_norm
        group_norm native_group_norm instance_norm rms_norm var_mean std_mean aminmax median
        count_nonzero cosine_similarity cross_entropy_loss nll_loss""",
    "a sliding window is the library's": """
        max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
        adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d adaptive_max_pool1d
        adaptive_max_pool2d adaptive_max_pool3d max_pool1d_with_indices max_pool2d_with_indices
        max_pool3d_with_indices fractional_max_pool2d fractional_max_pool3d im2col""",
    "an indexed read or write is the library's": """
        index index_select gather scatter embedding take index_put index_add masked_select one_hot
        scatter_add scatter_reduce index_copy index_fill""",
    "random numbers are the library's, drawn as the original draws them": """
        rand randn randint rand_like randn_like bernoulli native_dropout dropout normal randperm
        uniform exponential multinomial""",
    "its gradient at the ends of its domain is the library's": """
        special_entr special_xlog1py binary_cross_entropy""",
    "it stops the gradient": "detach",
}
_REASONS = {name: reason for reason, names in _FAMILIES.items() for name in names.split()}


def operator_of(node: fx.Node) -> str:
    """The operator of torch that a node calls: ours stand for those of the same name."""
    return str(node.target).replace("opweld.", "aten.")


def reason_for(target: str) -> str:
    """Why an operator that no row translates stays a call."""
    name = target.split(".")[1] if target.startswith("aten.") else ""
    return _REASONS.get(name, f"no kernel is known for {target}")


def result_types(fake: Any, symbols: Symbols) -> tuple[TensorType | None, ...]:
    """The type of each result; None for one that is no tensor of our types."""
    results = fake if isinstance(fake, tuple | list) else (fake,)
    return tuple(symbols.type(r) if isinstance(r, torch.Tensor) else None for r in results)


def library_call(
    node: fx.Node, values: Any, build: Builder, symbols: Symbols, place: Place, reason: str
) -> Node:
    """The CALL for an exported node; `values` are its (args, kwargs) with our nodes in them."""
    operands: list[Node] = []
    writer = _Arguments(operands, place)
    args, kwargs = values
    attrs = CallAttrs(
        target=operator_of(node),
        arguments=tuple(writer.write(a) for a in args),
        keywords=tuple((k, writer.write(v)) for k, v in kwargs.items()),
        results=result_types(node.meta["val"], symbols),
        reason=reason,
        draws=draws(node),
    )
    return build.arena.call(tuple(operands), attrs)


@dataclass(frozen=True, slots=True)
class Place:
    """The device of the inputs, and the expression that gives it in the forward."""

    device: torch.device
    text: str


class _Arguments:
    """Writes the arguments of a call; tensors become operands."""

    def __init__(self, operands: list[Node], place: Place) -> None:
        self.operands = operands
        self.place = place

    def write(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self._operand(value)
        if isinstance(value, tuple | list):
            return tuple(self.write(v) for v in value)
        if value is None or isinstance(value, int | float | complex | str | Expr):
            return value
        return TorchLiteral(self._literal(value))

    def _operand(self, node: Node) -> Operand:
        if node not in self.operands:
            self.operands.append(node)
        return Operand(self.operands.index(node))

    def _literal(self, value: Any) -> str:
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value)
        if isinstance(value, torch.device):
            same = value.type == self.place.device.type
            return self.place.text if same else f"torch.device({value.type!r})"
        if isinstance(value, RunTimeScalar):
            raise CaptureError(
                "a number read from a tensor is used as the argument of a library call",
                next_step="keep it a tensor",
            )
        raise CaptureError(f"an argument of type {type(value).__name__} cannot be written as text")


def refuse_effects(node: fx.Node, where: Where | None) -> None:
    """Raises CaptureError for an operator that writes to its arguments or is no plain operator."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable:
        return
    raise OriginalKept(
        f"the forward uses {target}, which has effects beside its result", where=where
    )
