"""An output that lies in the candidate's process, fetched in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

Index = tuple[slice | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in the memory of its process, and how."""

    address: int
    strides: tuple[int, ...]
    conj: bool = False
    neg: bool = False


class Holder(Protocol):
    """Whoever can ask the process for elements of its results."""

    def fetch(self, number: int, leaf: int, index: list[Any], count: int, dtype: Any) -> Tensor: ...

    def read(self, place: Place, shape: tuple[int, ...], dtype: Any) -> Tensor | None:
        """Straight from its memory, without asking; None where that cannot be."""
        ...

    def drop(self, number: int) -> None: ...


class RemoteLeaf:
    """Shape, dtype, device and layout of a tensor elsewhere; indexing fetches.

    An index is a tuple of integers with at most one slice behind them, as `compare.pieces` makes
    it. `rows` narrows without fetching. The result that the leaf belongs to is kept there for as
    long as a leaf of it lives here.
    """

    def __init__(
        self,
        holder: Holder,
        number: int,
        position: int,
        shape: torch.Size,
        dtype: torch.dtype,
        device: torch.device,
        layout: torch.layout = torch.strided,
        result: object = None,
        first: int = 0,
        place: Place | None = None,
    ) -> None:
        self.shape, self.dtype, self.device, self.layout = shape, dtype, device, layout
        self._holder, self._number, self._position = holder, number, position
        self._result = result or ResultHandle(holder, number)
        self._first = first
        self.place = place

    @property
    def nbytes(self) -> int:
        return self.numel() * self.dtype.itemsize

    def numel(self) -> int:
        return self.shape.numel()

    def dim(self) -> int:
        return len(self.shape)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def rows(self, rows: slice) -> RemoteLeaf:
        """Some of the leading dimension."""
        first, stop, _ = rows.indices(self.shape[0])
        shape = torch.Size((max(0, stop - first), *self.shape[1:]))
        return RemoteLeaf(
            self._holder,
            self._number,
            self._position,
            shape,
            self.dtype,
            self.device,
            self.layout,
            self._result,
            self._first + first,
            self.place,
        )

    def __getitem__(self, index: Index | slice | int) -> Tensor:
        shape = list(self.shape)
        asked: list[Any] = []
        for step in index if isinstance(index, tuple) else (index,):
            if isinstance(step, int):
                asked.append(step)
                shape = shape[1:]
            else:
                start, stop, _ = step.indices(shape[0])
                asked.append([start, max(start, stop)])
                shape[0] = max(0, stop - start)
        asked = self._shifted(asked)
        size = torch.Size(shape)
        if self.place is not None:
            read = self._holder.read(part_of(self.place, asked, self.dtype), size, self.dtype)
            if read is not None:
                return read
        data = self._holder.fetch(self._number, self._position, asked, size.numel(), self.dtype)
        return data.reshape(size).to(self.device)

    def _shifted(self, asked: list[Any]) -> list[Any]:
        """Against the whole leaf, of which this one may be some rows."""
        if not self.shape:
            return asked
        if not asked:
            return [[self._first, self._first + self.shape[0]]]
        head = asked[0]
        moved = head + self._first if isinstance(head, int) else [n + self._first for n in head]
        return [moved, *asked[1:]]


def elements(data: Tensor, place: Place, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The elements in the bytes that begin at a place, in row-major order."""
    if not data.numel():
        return torch.empty(shape, dtype=dtype)
    found = data.view(dtype).as_strided(shape, place.strides)
    found = found.conj() if place.conj else found
    found = -found if place.neg else found
    return found.resolve_conj().contiguous()


def part_of(place: Place, index: list[Any], dtype: torch.dtype) -> Place:
    """Where the elements at an index lie: integers and starts, one for each leading dimension."""
    starts = [step if isinstance(step, int) else step[0] for step in index]
    offset = sum(at * stride for at, stride in zip(starts, place.strides, strict=False))
    kept = [n for n, step in enumerate(index) if not isinstance(step, int)]
    strides = (*(place.strides[n] for n in kept), *place.strides[len(index) :])
    return Place(place.address + offset * dtype.itemsize, strides, place.conj, place.neg)


class ResultHandle:
    """Tells the holder when no leaf of a result is left."""

    def __init__(self, holder: Holder, number: int) -> None:
        self._holder, self._number = holder, number

    def __del__(self) -> None:
        self._holder.drop(self._number)
