"""Recurrent layers as one call.

To learn the shapes of what a layer returns, torch runs its steps one by one on tensors without
elements, several times an export: minutes for some hundred steps. Here shapes are computed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._subclasses import FakeTensor, fake_impls

_ATEN = torch.ops.aten
LAYERS = (_ATEN.lstm.input, _ATEN.gru.input, _ATEN.rnn_tanh.input, _ATEN.rnn_relu.input)
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


@contextlib.contextmanager
def shapes_of_recurrent_layers() -> Iterator[None]:
    """In it, a recurrent layer of tensors without elements runs none of its steps."""
    rules = fake_impls.op_implementations_dict
    with contextlib.ExitStack() as end:
        for layer in LAYERS:
            if layer not in rules:
                rules[layer] = _by_rule
                end.callback(rules.pop, layer, None)
            if layer in decomposition_table:
                end.callback(decomposition_table.__setitem__, layer, decomposition_table[layer])
                decomposition_table[layer] = _results
            kernels = layer.py_kernels
            for key in [key for key in _KEYS if key in kernels]:
                end.callback(kernels.__setitem__, key, kernels[key])
                kernels[key] = partial(_by_kernel, kernels[key])
            end.callback(layer._dispatch_cache.clear)
            layer._dispatch_cache.clear()
        yield


def _by_rule(mode: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    with mode:
        return _results(*args, **kwargs)


def _by_kernel(kernel: Any, x: Tensor, *args: Any) -> Any:
    has_none = isinstance(x, FakeTensor)
    return _results(x, *args) if has_none else kernel(x, *args)


def _results(x: Tensor, states: Any, params: Any, *args: Any) -> Any:
    """Tensors of the shapes that the layer returns.

    `args` are has_biases, num_layers, dropout, train, bidirectional and batch_first, of which the
    shapes need the last two.
    """
    *_, bidirectional, batch_first = args
    left = states if isinstance(states, (list, tuple)) else [states]
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
    width = left[0].shape[-1] * (2 if bidirectional else 1)
    # gradients are asked for where they are of any operand
    zero = (x.sum() + left[0].sum() + sum(each.sum() for each in params)).to(x.dtype)
    out = x.new_empty(steps, batch, width) + zero
    out = out.transpose(0, 1) if batch_first else out
    return (out, *(state.new_empty(state.shape) + zero for state in left))
