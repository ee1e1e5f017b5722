"""Which outputs share memory with inputs, parameters, buffers or earlier outputs; their strides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

NAME = "aliases"
_MAX_MARKS = 2**28


@dataclass(frozen=True, slots=True)
class Aliases:
    """What `alias_map` found, and the strides of each output that is a dense tensor."""

    shared: tuple[tuple[str, str], ...] = ()
    strides: tuple[tuple[str, tuple[int, ...]], ...] = ()


def aliases_of(
    outputs: Mapping[str, object], inputs: Iterable[object], state: Mapping[str, object]
) -> Aliases:
    """Both for the leaves of one call; leaves that are no dense tensors are left out."""
    dense = {name: t for name, t in outputs.items() if is_dense(t)}
    held = {f"input {i}": t for i, t in enumerate(inputs)} | {
        f"state {name}": t for name, t in state.items()
    }
    strides = tuple((name, tuple(t.stride())) for name, t in dense.items())
    return Aliases(alias_map(dense, held), strides)


def alias_map(
    outputs: Mapping[str, object], held: Mapping[str, object]
) -> tuple[tuple[str, str], ...]:
    """Each output with what it shares an element's memory with: something held, or one before."""
    found = []
    earlier = {name: t for name, t in held.items() if is_dense(t)}
    for name, output in outputs.items():
        if not is_dense(output):
            continue
        found += [(name, other) for other, t in earlier.items() if share_memory(output, t)]
        earlier[name] = output
    return tuple(found)


def alias_clause(new: Aliases, original: Aliases) -> str | None:
    """One clause on the first memory that is shared on one side alone; None without one."""
    for name, other in new.shared:
        if (name, other) not in original.shared:
            return f"{name} shares memory with {other}, and the original's does not"
    for name, other in original.shared:
        if (name, other) not in new.shared:
            return f"{name} is a copy, where the original's shares memory with {other}"
    return None


def stride_note(new: Aliases, original: Aliases) -> str:
    """Which outputs have other strides than the original's; empty without one."""
    ours, theirs = dict(new.strides), dict(original.strides)
    parts = [
        f"{name} has strides {ours[name]} instead of {strides}"
        for name, strides in theirs.items()
        if name in ours and ours[name] != strides
    ]
    return "; ".join(parts[:3])


def share_memory(left: Tensor, right: Tensor) -> bool:
    """Whether a write to one can be seen in the other: an element's bytes belong to both."""
    if left.numel() == 0 or right.numel() == 0 or left.device != right.device:
        return False
    (a, b), (c, d) = _extent(left), _extent(right)
    if b <= c or d <= a:
        return False
    if _fills(left, b - a) or _fills(right, d - c):
        return True
    return _marks_meet(left, right, min(a, c), max(b, d))


def is_dense(t: object) -> TypeGuard[Tensor]:
    return isinstance(t, Tensor) and t.layout is torch.strided and t.device.type != "meta"


def _extent(t: Tensor) -> tuple[int, int]:
    """The first byte, and the one after the last, that the elements lie in."""
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()


def _fills(t: Tensor, num_bytes: int) -> bool:
    """Whether no byte of the extent is left out: all strides are products of smaller sizes."""
    return t.numel() * t.element_size() == num_bytes and not _repeats(t)


def _repeats(t: Tensor) -> bool:
    return any(size > 1 and not stride for size, stride in zip(t.shape, t.stride(), strict=True))


def _marks_meet(left: Tensor, right: Tensor, first: int, end: int) -> bool:
    """Interleaved layouts: the elements of one are marked in a map, those of the other read there.

    A map of more than 2^28 bytes, or elements of unequal size, count as shared.
    """
    size = left.element_size()
    if size != right.element_size() or (end - first) // size > _MAX_MARKS:
        return True
    if (left.data_ptr() - right.data_ptr()) % size:
        return True
    marks = torch.zeros((end - first) // size, dtype=torch.bool)
    views = [
        marks.as_strided(t.shape, t.stride(), (t.data_ptr() - first) // size) for t in (left, right)
    ]
    views[0].fill_(True)
    return bool(views[1].any())
