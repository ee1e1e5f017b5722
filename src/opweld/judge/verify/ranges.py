"""Ops that abort on a GPU when a value is out of range: such values are tried on the CPU first.

A device-side assertion ends every further use of the device in the process, so an original that
asserts must be found out beforehand.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.judge.load import Call, brief
from opweld.judge.sparse import deep_copy

# Names of ATen ops, without overload, whose CUDA kernels assert on the values of their arguments.
ASSERTING = frozenset(
    """_assert_async bernoulli binary_cross_entropy ctc_loss _ctc_loss embedding embedding_bag
    _embedding_bag gather index index_add index_copy index_fill index_put index_put_ index_select
    multi_margin_loss multilabel_margin_loss multinomial nll_loss2d_forward nll_loss_forward
    one_hot put scatter scatter_ scatter_add scatter_reduce take""".split()
)
MAX_CPU_ELEMS = 2**24


class _Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def asserts_on_device(model: nn.Module, call: Call) -> bool:
    """Whether a run on ordinary inputs calls one of the asserting ops."""
    with torch.no_grad(), _Names() as names:
        model(*call.args, **call.kwargs)
    return bool(names.seen & ASSERTING)


def refusal_on_cpu(model: nn.Module, call: Call) -> str | None:
    """Why these inputs are not given to the device: the original raises on the CPU, say."""
    if sum(t.numel() for t in call.tensors()) > MAX_CPU_ELEMS:
        return "an op of the model asserts on the device, and the inputs are too large to try first"
    try:
        on_cpu = call.map(lambda t: t.cpu())
        with torch.no_grad():
            deep_copy(model).cpu()(*on_cpu.args, **on_cpu.kwargs)
    except Exception as error:
        return f"the original refuses: {brief(error, 160)}"
    return None
