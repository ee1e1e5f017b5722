"""What sparse tensors are stored in."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_BY_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def dense_parts(t: Tensor) -> list[Tensor]:
    """The strided tensors that it is stored in: itself, or a sparse one's indices and values.

    Empty for layouts that show no memory (MKL-DNN's).
    """
    if t.layout is torch.strided:
        return [t]
    if t.layout is torch.sparse_coo:
        return [t._indices(), t._values()]
    if t.layout in _BY_ROWS:
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in _BY_COLUMNS:
        return [t.ccol_indices(), t.row_indices(), t.values()]
    return []


def as_dense(t: Tensor) -> Tensor:
    """The strided tensor of the same elements, which it is itself unless it is sparse."""
    return t if t.layout is torch.strided else t.to_dense()


def with_stored(t: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """`change` of a strided tensor; a copy of a sparse one, its indices kept, with that of its
    values.
    """
    if t.layout is torch.strided:
        return change(t)
    changed = t.clone()
    for values in dense_parts(changed)[-1:]:
        values.copy_(change(values))
    return changed


def deep_copy(model: nn.Module) -> nn.Module:
    """`copy.deepcopy`, which torch lacks for compressed sparse tensors."""
    state = (*model.parameters(), *model.buffers())
    copies = {id(t): t.clone() for t in state if t.layout in (*_BY_ROWS, *_BY_COLUMNS)}
    return copy.deepcopy(model, copies)
