"""Which outputs share memory with inputs, parameters, buffers or earlier outputs; strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeGuard

import torch
from torch import Tensor, nn

from opweld.judge.sparse import dense_parts

NAME, STATE = "aliases", "the state"
_OF_OUTPUTS, _OF_STATE = " shares memory with output", " shares memory with state "
_MAX_MARKS = 2**24
_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Located(Protocol):
    """What has a place in memory: a tensor, or what is known of one elsewhere."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def device(self) -> torch.device: ...

    def numel(self) -> int: ...

    def stride(self) -> tuple[int, ...]: ...

    def data_ptr(self) -> int: ...

    def element_size(self) -> int: ...


def alias_map(outputs: Mapping[str, object], held: Mapping[str, object]) -> tuple[str, ...]:
    """Each output with what it shares an element's memory with: something held, or one before."""
    found: list[str] = []
    earlier = {name: t for name, t in held.items() if is_dense(t)}
    for name, output in outputs.items():
        if not is_dense(output):
            continue
        shared = [other for other, t in earlier.items() if share_memory(output, t)]
        found += [f"{name} shares memory with {other}" for other in shared]
        earlier[name] = output
    return tuple(found)


def alias_clause(new: Sequence[str], original: Sequence[str]) -> str | None:
    """One clause on the first memory that is shared on one side alone; None without one."""
    for line in new:
        if line not in original:
            return f"ModelNew's {line}, and the original's does not"
    for line in original:
        if line not in new:
            return f"the original's {line}, and ModelNew's does not"
    return None


def of_outputs(lines: Sequence[str]) -> tuple[str, ...]:
    """Those of the lines that say which outputs share memory with each other."""
    return tuple(line for line in lines if _OF_OUTPUTS in line)


def without_names(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines, those on one entry of the state being on the state as a whole."""
    shorter = (line.partition(_OF_STATE) for line in lines)
    changed = (f"{head} shares memory with {STATE}" if sep else head for head, sep, _ in shorter)
    return tuple(dict.fromkeys(changed))


def stride_note(
    names: Sequence[str],
    new: Sequence[tuple[int, ...]],
    original: Sequence[tuple[int, ...]],
) -> str:
    """Which tensors have other strides than the original's, for a person; empty without one."""
    parts = [
        f"{name} has strides {ours} instead of {theirs}"
        for name, ours, theirs in zip(names, new, original, strict=False)
        if ours != theirs
    ]
    return "; ".join(parts[:3])


def share_memory(left: Located, right: Located) -> bool:
    """Whether a write to one can be seen in the other: an element's bytes belong to both."""
    if left.numel() == 0 or right.numel() == 0 or left.device != right.device:
        return False
    (a, b), (c, d) = _extent(left), _extent(right)
    if b <= c or d <= a:
        return False
    if _fills(left, b - a) or _fills(right, d - c):
        return True
    return _marks_meet(left, right, min(a, c), max(b, d))


def overwrite(t: Tensor) -> None:
    """Changes each element by inverting its bits, so that to do it twice restores them; of a sparse
    tensor those that it stores.
    """
    if t.layout is not torch.strided:
        for values in dense_parts(t)[-1:]:
            overwrite(values)
        return
    for dim, stride in enumerate(t.stride()):
        t = t.narrow(dim, 0, 1) if stride == 0 and t.numel() else t
    t = t.detach().resolve_neg().resolve_conj()
    with torch.no_grad():
        bits = torch.view_as_real(t) if t.is_complex() else t
        bits.view(_INTEGER_OF_SIZE[bits.element_size()]).bitwise_not_()


def are_written_over(held: Sequence[Tensor], fresh: Sequence[Tensor]) -> bool:
    """Whether fresh values go into the tensors that are held: all are strided, and lie alike."""
    return len(held) == len(fresh) and all(
        a.layout is b.layout is torch.strided
        and (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
        for a, b in zip(held, fresh, strict=True)
    )


def is_dense(t: object) -> TypeGuard[Tensor]:
    """Whether it lies in memory that can be looked at; classes of others may hide theirs."""
    plain = type(t) in (Tensor, nn.Parameter, nn.Buffer)
    return plain and isinstance(t, Tensor) and t.layout is torch.strided and not t.is_meta


def _extent(t: Located) -> tuple[int, int]:
    """The first byte, and the one after the last, that the elements lie in."""
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()


def _fills(t: Located, num_bytes: int) -> bool:
    """Whether no byte of the extent is left out: all strides are products of smaller sizes."""
    return t.numel() * t.element_size() == num_bytes and not _repeats(t)


def _repeats(t: Located) -> bool:
    return any(size > 1 and not stride for size, stride in zip(t.shape, t.stride(), strict=True))


def _marks_meet(left: Located, right: Located, first: int, end: int) -> bool:
    """Interleaved layouts: the elements of one are marked in a map, those of the other read there.

    A map of more than 2^24 elements, or elements of unequal size, count as shared.
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
