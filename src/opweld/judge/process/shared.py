"""Inputs in memory that the referee and the candidate both map.

The referee writes them there, and sees for itself what a call wrote to them, or beside them: it
asks nobody in the candidate's process.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from opweld.judge.load import Call
from opweld.judge.process.wire import Header, call_of, dtype_named, laid_out, tensors_in

# NaN in every floating-point format stands before and behind each memory.
GUARD_BYTES, _GUARD = 512, 0xFF
_ALIGNMENT = 64
_LEAST_BYTES = 2**20


def new_shared_memory() -> int:
    """The descriptor of an empty file in memory, which two processes can map."""
    return os.memfd_create("memory", os.MFD_CLOEXEC)


@dataclass(slots=True)
class Placed:
    """A call in the shared memory.

    `header` and `text` tell the candidate where; `given` are the tensors as they were placed,
    `views` the same ones in the shared memory, `guards` the bytes around them, `whole` and `region`
    all of it and its place in the file. `left` is what it held when the call had returned.
    """

    header: Header
    text: Tensor
    given: list[Tensor]
    views: list[Tensor]
    guards: list[Tensor]
    whole: Tensor
    region: tuple[int, int]
    left: Tensor | None = None

    def num_guards_changed(self) -> int:
        """Bytes beside the inputs that are not what they were."""
        return int(sum((guard != _GUARD).sum() for guard in self.guards))


class SharedMemory:
    """The referee's end: places calls, and takes memory again that nobody needs any more."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = 0
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._placed: list[Placed] = []

    def place(self, call: Call, guarded: bool = False) -> Placed:
        """Writes a call where no other one that is still needed lies.

        Where it is `guarded`, the candidate's storages go on into the bytes behind: torch then does
        not refuse what goes beyond the end.
        """
        header, (text, *spans) = laid_out(call)
        places, need = _places(header, spans)
        start = self._room_for(need)
        whole = self._bytes[start : start + need]
        whole.fill_(_GUARD)
        memories, guards, last = list[Tensor](), list[Tensor](), 0
        for begin, place, span in zip(header["spans"], places, spans, strict=True):
            dtype = dtype_named(begin["dtype"])
            first = place + begin["offset"] * dtype.itemsize
            whole[first : first + span.numel()].copy_(span)
            guards.append(whole[last:first])
            last = first + span.numel()
            memories.append(_memory_in(whole, place, last, dtype, begin["offset"]))
        guards.append(whole[last:])
        laid = tensors_in(header, memories)
        header |= {"places": [start + place for place in places], "size": self._size}
        beyond = GUARD_BYTES if guarded else 0
        header["counts"] = [
            memory.numel() + beyond // memory.element_size() * bool(memory.numel())
            for memory in memories
        ]
        views = call_of(text, laid).tensors()
        given = call.tensors()
        found = Placed(header, text, given, views, guards, whole, (start, start + need))
        self._placed.append(found)
        return found

    def free(self, placed: Placed) -> None:
        """Nobody looks at it any more, nor do results that may lie in it."""
        self._placed = [each for each in self._placed if each is not placed]

    def exchange(self, old: Placed, new: Placed) -> None:
        """Another account of what lies in the same memory."""
        self._placed = [new if each is old else each for each in self._placed]

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _room_for(self, need: int) -> int:
        start = 0
        for first, stop in sorted(each.region for each in self._placed):
            if first - start >= need:
                break
            start = max(start, stop)
        if start + need > self._size:
            self._size = max(2 * self._size, _rounded(start + need, mmap.PAGESIZE), _LEAST_BYTES)
            os.ftruncate(self._descriptor, self._size)
            # the mapping before stays for as long as a tensor lies in it
            mapping = mmap.mmap(self._descriptor, self._size)
            self._bytes = torch.frombuffer(mapping, dtype=torch.uint8)
        return start


@dataclass(slots=True)
class Mapped:
    """The candidate's end."""

    descriptor: int = -1
    mapping: mmap.mmap | None = None

    def call(self, header: Header, text: Tensor) -> Call:
        """The call that the referee placed, each memory a storage of its own."""
        if self.mapping is None or len(self.mapping) < header["size"]:
            self.mapping = mmap.mmap(self.descriptor, header["size"])
        memories = [
            _storage(self.mapping, dtype_named(begin["dtype"]), place, count)
            for begin, place, count in zip(
                header["spans"], header["places"], header["counts"], strict=True
            )
        ]
        return call_of(text, tensors_in(header, memories))


def _storage(mapping: mmap.mmap, dtype: torch.dtype, place: int, count: int) -> Tensor:
    if count == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(mapping, dtype=dtype, count=count, offset=place)


def _places(header: Header, spans: list[Tensor]) -> tuple[list[int], int]:
    """Where each memory begins, and what all take: guards between them, whole lines."""
    places, end = list[int](), GUARD_BYTES
    for begin, span in zip(header["spans"], spans, strict=True):
        places.append(end)
        end += begin["offset"] * dtype_named(begin["dtype"]).itemsize + span.numel()
        end = _rounded(end + GUARD_BYTES, _ALIGNMENT)
    return places, end


def _memory_in(whole: Tensor, place: int, last: int, dtype: torch.dtype, offset: int) -> Tensor:
    if last - place == offset * dtype.itemsize:
        return torch.empty(0, dtype=dtype)
    return whole[place:last].view(dtype)


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step
