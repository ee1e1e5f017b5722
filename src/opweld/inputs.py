"""Example inputs: cut to a batch, and moved to the target's device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opweld.target import Target


def cut_batch(args: tuple[Any, ...], batch: int | None) -> tuple[Any, ...]:
    """The first `batch` rows of every tensor that shares the first tensor's leading size."""
    leaves = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    size = next((leaf.shape[0] for leaf in leaves if leaf.dim()), None)
    if batch is None or size is None:
        return args
    return _mapped(args, lambda t: t[:batch] if t.dim() and t.shape[0] == size else t)


def on_device(
    target: Target, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Model and inputs where the target's kernels run; as they are where there is no such device.

    A module that must move is copied: the caller's own stays where it is.
    """
    if target.language != "cuda" or not torch.cuda.is_available():
        return module, args, kwargs
    tensors = (*module.parameters(), *module.buffers())
    if not all(tensor.is_cuda for tensor in tensors):
        module = copy.deepcopy(module).cuda()
    return module, _mapped(args, torch.Tensor.cuda), _mapped(kwargs, torch.Tensor.cuda)


def _mapped(values: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return pytree.tree_map_only(torch.Tensor, change, values)
