"""How PyTorch calls are spelled: their public names, and the layout of convolutions."""

from __future__ import annotations

from ...ir.graph import Node

FUNCTIONAL = "torch.nn.functional"

# PyTorch calls with a public name whose arguments are in the operator's own order.
CALLS = {
    "aten.linear.default": f"{FUNCTIONAL}.linear",
    "aten.conv1d.default": f"{FUNCTIONAL}.conv1d",
    "aten.conv2d.default": f"{FUNCTIONAL}.conv2d",
    "aten.conv3d.default": f"{FUNCTIONAL}.conv3d",
    "aten.conv_transpose1d.default": f"{FUNCTIONAL}.conv_transpose1d",
    "aten.conv_transpose2d.input": f"{FUNCTIONAL}.conv_transpose2d",
    "aten.conv_transpose3d.input": f"{FUNCTIONAL}.conv_transpose3d",
    "aten.scaled_dot_product_attention.default": f"{FUNCTIONAL}.scaled_dot_product_attention",
    "aten.embedding.default": "torch.embedding",
    "aten.index_add.default": "torch.index_add",
    "aten.layer_norm.default": "torch.layer_norm",
    "aten.matmul.default": "torch.matmul",
    "aten.mm.default": "torch.mm",
    "aten.bmm.default": "torch.bmm",
    "aten.softmax.int": "torch.softmax",
    "aten.clone.default": "torch.clone",
    "aten.contiguous.default": "torch.Tensor.contiguous",
    "aten.dropout.default": f"{FUNCTIONAL}.dropout",
}

# Where an operator has more arguments than the function of that name.
NUM_ARGUMENTS = {"aten.layer_norm.default": 5}


def channels_first(call: Node) -> str:
    """What follows the input of a call whose channels are last, so that it is as PyTorch wants it:
    a view. (`movedim` takes the host twice as long as `permute`.)
    """
    rank = call.type.rank
    return f".permute(0, {', '.join(map(str, (rank - 1, *range(1, rank - 1))))})"


def channels_last(call: Node) -> str:
    """What follows a call whose result is to have its channels last."""
    if not call.attrs.channels_last:
        return ""
    return f".permute(0, {', '.join(map(str, (*range(2, call.type.rank), 1)))})"
