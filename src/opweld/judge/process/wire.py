"""Frames between the referee and the candidate: a header of JSON, then raw bytes.

What comes from the candidate is data to be compared, never code: no pickle on that way, no size
that was not asked for. The arguments of a call, which go the other way, may be of the model file's
own classes and are pickled.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opweld.judge.load import Call

MAX_HEADER_BYTES = 16 * 2**20
_SIZES = struct.Struct("<IQ")  # bytes of the header, bytes of the payload
# torch's allocations begin at multiples of this, so an offset from one keeps a misalignment.
_ALIGNMENT = 64
# A tensor keeps its distance from the start of its memory up to this.
_MAX_OFFSET_BYTES = 4096

Header = dict[str, Any]
Receive = Callable[[memoryview], None]
Send = Callable[[memoryview], None]


class BadFrame(Exception):
    """What came is no frame, or not the one that was asked for."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Both directions of one connection; `send` and `receive` take all of a buffer or raise."""

    send_all: Send
    receive_all: Receive

    def send(self, header: Header, payload: Tensor | None = None) -> None:
        """One frame; `payload` is a contiguous tensor of bytes on the CPU."""
        text = json.dumps(header).encode()
        num_bytes = 0 if payload is None else payload.numel()
        self.send_all(memoryview(_SIZES.pack(len(text), num_bytes) + text))
        if payload is not None and num_bytes:
            self.send_all(view_of(payload))

    def receive(self) -> tuple[Header, int]:
        """The next header, and how many bytes of payload follow it.

        Raises:
            BadFrame: the header is longer than any, or no JSON object.
        """
        sizes = bytearray(_SIZES.size)
        self.receive_all(memoryview(sizes))
        num_header, num_payload = _SIZES.unpack(sizes)
        if num_header > MAX_HEADER_BYTES:
            raise BadFrame("a header that is too long")
        text = bytearray(num_header)
        self.receive_all(memoryview(text))
        try:
            header = json.loads(bytes(text))
        except ValueError as error:
            raise BadFrame("a header that is no JSON") from error
        if not isinstance(header, dict):
            raise BadFrame("a header that is no object")
        return header, num_payload

    def receive_bytes(self, count: int) -> Tensor:
        """The payload of the frame whose header came last."""
        buffer = torch.empty(count, dtype=torch.uint8)
        if count:
            self.receive_all(view_of(buffer))
        return buffer


def view_of(buffer: Tensor) -> memoryview:
    """The memory of a contiguous tensor of bytes on the CPU."""
    return memoryview(buffer.numpy())


def bytes_of(t: Tensor) -> Tensor:
    """The elements in row-major order, as bytes on the CPU."""
    t = t.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # a single element counts as contiguous whatever its strides, which a view would mind
    return t.as_strided((t.numel(),), (1,)).view(torch.uint8)


def tensor_of(data: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """The tensor that `bytes_of` was given, on the CPU."""
    return data.view(dtype).reshape(shape)


def dtype_named(name: str) -> torch.dtype:
    """`torch.float32` for "float32".

    Raises:
        BadFrame: there is no such dtype.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise BadFrame(f"no dtype: {name[:40]!r}")
    return dtype


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def pack_call(call: Call) -> tuple[Header, Tensor]:
    """A call as a header and bytes: each tensor with its layout in memory, gaps included.

    Tensors in one memory stay so.
    """
    header, parts = laid_out(call)
    return {**header, "sizes": [part.numel() for part in parts]}, torch.cat(parts)


def laid_out(call: Call) -> tuple[Header, list[Tensor]]:
    """The layout of a call's tensors, its arguments as bytes and, behind them, each memory's."""
    held: list[Tensor] = []
    text = io.BytesIO()
    _CallPickler(text, held).dump((call.args, call.kwargs))
    groups = _by_memory(held)
    spans = [_span([held[number] for number in group]) for group in groups]
    header = {
        "tensors": [_layout(t) for t in held],
        "spans": [_start(held[group[0]], held, group) for group in groups],
    }
    return header, [torch.frombuffer(bytearray(text.getvalue()), dtype=torch.uint8), *spans]


def unpack_call(header: Header, data: Tensor, device: torch.device) -> Call:
    """The call of `pack_call`, its tensors on `device`, laid out as they were."""
    text, *spans = torch.split(data, header["sizes"])
    memories = [
        _memory(start, span, device) for start, span in zip(header["spans"], spans, strict=True)
    ]
    return call_of(text, tensors_in(header, memories))


def tensors_in(header: Header, memories: list[Tensor]) -> dict[int, Tensor]:
    """The tensors of a layout, by number, in memories that begin where theirs do."""
    held: dict[int, Tensor] = {}
    for start, memory in zip(header["spans"], memories, strict=True):
        for number in start["tensors"]:
            layout = header["tensors"][number]
            first = layout["offset"] - start["first"] + start["offset"] + memory.storage_offset()
            held[number] = memory.as_strided(layout["shape"], layout["strides"], first)
    return held


def call_of(text: Tensor, held: dict[int, Tensor]) -> Call:
    """The call whose arguments these bytes are, with its tensors put in."""
    args, kwargs = _CallUnpickler(io.BytesIO(text.numpy().tobytes()), held).load()
    return Call(args, kwargs)


class _CallPickler(pickle.Pickler):
    """Leaves the tensors out, by number."""

    def __init__(self, file: io.BytesIO, held: list[Tensor]) -> None:
        super().__init__(file)
        self._held = held

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is not Tensor or obj.layout is not torch.strided:
            return None
        for number, known in enumerate(self._held):
            if known is obj:
                return number
        self._held.append(obj)
        return len(self._held) - 1


class _CallUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, held: dict[int, Tensor]) -> None:
        super().__init__(file)
        self._held = held

    def persistent_load(self, number: int) -> Tensor:
        return self._held[number]


def _by_memory(held: list[Tensor]) -> list[list[int]]:
    """The numbers of the tensors in each memory; those of another dtype lie apart."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, t in enumerate(held):
        plain = t.numel() and not t.is_conj() and not t.is_neg()
        key = (t.untyped_storage().data_ptr(), t.dtype) if plain else (number,)
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def _layout(t: Tensor) -> Header:
    return {"shape": list(t.shape), "strides": list(t.stride()), "offset": t.storage_offset()}


def _start(t: Tensor, held: list[Tensor], group: list[int]) -> Header:
    """Which tensors lie in a span, and how far its first element is from an allocation's start."""
    first = min(held[number].storage_offset() for number in group)
    elements = max(1, _ALIGNMENT // t.element_size())
    offset = first if first * t.element_size() <= _MAX_OFFSET_BYTES else first % elements
    return {"dtype": name_of(t.dtype), "first": first, "offset": offset, "tensors": group}


def _span(group: list[Tensor]) -> Tensor:
    """The bytes from the first element to the last; what lies between is NaN in any format.

    What lies there on this side may be left over from a result.
    """
    tensors = [_without_repeats(t.detach().resolve_conj().resolve_neg()) for t in group]
    if tensors[0].numel() == 0:
        return torch.empty(0, dtype=torch.uint8)
    if len(tensors) == 1 and _extent(tensors[0]) == tensors[0].numel():
        return bytes_of(tensors[0].as_strided((tensors[0].numel(),), (1,)))
    first = min(t.storage_offset() for t in tensors)
    count = max(t.storage_offset() - first + _extent(t) for t in tensors)
    memory = torch.full((count * tensors[0].element_size(),), 0xFF, dtype=torch.uint8)
    elements = memory.view(tensors[0].dtype)
    for t in tensors:
        elements.as_strided(t.shape, t.stride(), t.storage_offset() - first).copy_(t)
    return memory


def _without_repeats(t: Tensor) -> Tensor:
    """An expanded dimension holds one element."""
    for dim, stride in enumerate(t.stride()):
        t = t.narrow(dim, 0, 1) if stride == 0 and t.numel() else t
    return t


def _extent(t: Tensor) -> int:
    """Elements from the first to the last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))


def _memory(start: Header, span: Tensor, device: torch.device) -> Tensor:
    dtype, offset = dtype_named(start["dtype"]), start["offset"]
    elements = span.clone().view(dtype)  # a slice of bytes may begin anywhere
    memory = torch.empty(offset + elements.numel(), dtype=dtype, device=device)
    memory[offset:].copy_(elements)
    return memory
