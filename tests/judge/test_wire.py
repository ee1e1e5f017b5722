"""Frames and calls over the wire: what arrives is what was sent, layouts and gaps included."""

from __future__ import annotations

import json
import struct
from collections import namedtuple

import pytest
import torch

from opweld.judge.load import Call
from opweld.judge.process.leaf import RemoteLeaf
from opweld.judge.process.wire import (
    BadFrame,
    Wire,
    bytes_of,
    dtype_named,
    name_of,
    pack_call,
    tensor_of,
    unpack_call,
)

CPU = torch.device("cpu")
Point = namedtuple("Point", "x y")


class Tape:
    """What is sent can be received."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)

    def send(self, data: memoryview) -> None:
        self.data += data

    def receive(self, buffer: memoryview) -> None:
        buffer[:] = self.data[: len(buffer)]
        del self.data[: len(buffer)]


def there_and_back(call: Call) -> Call:
    tape = Tape()
    wire = Wire(tape.send, tape.receive)
    header, data = pack_call(call)
    wire.send({"call": header}, data)
    received, count = wire.receive()
    return unpack_call(received["call"], wire.receive_bytes(count), CPU)


BASE = torch.arange(120.0).reshape(2, 3, 4, 5)
LAYOUTS = {
    "contiguous": BASE,
    "transposed": BASE.permute(3, 1, 0, 2),
    "strided": BASE[:, ::2, 1:, ::3],
    "misaligned": torch.arange(61.0)[1:].reshape(3, 20),
    "expanded": BASE[:, :1].expand(2, 6, 4, 5),
    "channels last": BASE.contiguous(memory_format=torch.channels_last),
    "number": torch.tensor(2.5),
    "empty": torch.empty(0, 3),
    "overlapping": torch.arange(20.0).unfold(0, 6, 2),
    "bools": torch.tensor([True, False, True])[::2],
    "halves": torch.arange(7).to(torch.bfloat16),
    "one element, strided": torch.arange(12.0).view(1, 12)[:, 3],
    "negated": torch._neg_view(torch.arange(5.0)),
    "conjugates": torch.tensor([1 + 2j, -3j]).conj(),
    "float8": torch.arange(4.0).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_tensor_arrives_with_its_layout(name: str) -> None:
    sent = LAYOUTS[name]
    (got,) = there_and_back(Call((sent,), {})).args
    assert got.dtype is sent.dtype and got.shape == sent.shape
    assert got.stride() == sent.stride()
    assert torch.equal(bytes_of(got), bytes_of(sent))
    if sent.numel():
        assert got.data_ptr() % 16 == sent.storage_offset() * sent.element_size() % 16


def test_gaps_are_nan() -> None:
    """Neither what lies there on this side nor anything that a sum could take in unnoticed."""
    secret = torch.full((4, 8), 7.0)
    (got,) = there_and_back(Call((secret[:, ::2],), {})).args
    around = got.as_strided((31,), (1,))
    assert around[1::2].isnan().all() and around[::2].eq(7).all()


def test_memory_that_is_shared_stays_shared() -> None:
    base = torch.arange(40.0)
    left, right, apart = base[4:16].view(3, 4), base[8:20].view(3, 4).t(), torch.ones(3)
    one, other, third = there_and_back(Call((left, right, apart), {})).args
    assert torch.equal(one, left) and torch.equal(other, right) and torch.equal(third, apart)
    assert one.stride() == left.stride() and other.stride() == right.stride()
    assert other.data_ptr() - one.data_ptr() == 4 * 4
    other[0, 0] = -1
    assert one[1, 0] == -1 and third.eq(1).all()
    mixed = there_and_back(Call((base, base.view(torch.int32), base.expand(2, 40)), {})).args
    assert torch.equal(mixed[1].view(torch.float32), base)
    assert torch.equal(mixed[2], base.expand(2, 40)) and mixed[2].stride() == (0, 1)


def test_an_offset_stays_one() -> None:
    base = torch.arange(4096.0)
    near, far = there_and_back(Call((base[24:30].clone(), base[3001:]), {})).args
    assert near.storage_offset() == 0 and far.storage_offset() == 3001 % 16
    (kept,) = there_and_back(Call((base[24:30],), {})).args
    assert kept.storage_offset() == 24 and torch.equal(kept, base[24:30])


def test_nesting_and_identity_are_kept() -> None:
    x = torch.ones(3)
    call = there_and_back(Call(([x, (x, 2)],), {"p": Point(x, "y"), "d": {"k": None}}))
    first, (second, number) = call.args[0]
    assert first is second and number == 2
    assert call.kwargs["p"] == Point(first, "y") and call.kwargs["d"] == {"k": None}


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<IQ", 2**31, 0),
        struct.pack("<IQ", 4, 0) + b"nono",
        struct.pack("<IQ", 2, 0) + b"[]",
        struct.pack("<IQ", 2, 0) + b"\xff\xfe",
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    tape = Tape(data)
    with pytest.raises(BadFrame):
        Wire(tape.send, tape.receive).receive()


def test_what_is_no_dtype_is_refused() -> None:
    assert dtype_named(name_of(torch.bfloat16)) is torch.bfloat16
    for name in ("nn", "float33", "load"):
        with pytest.raises(BadFrame):
            dtype_named(name)


class Shelf:
    """Holds tensors as the candidate's process does; everything goes through JSON."""

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held
        self.dropped: list[int] = []

    def fetch(
        self, number: int, leaf: int, index: list[object], count: int, dtype: torch.dtype
    ) -> torch.Tensor:
        steps = json.loads(json.dumps(index))
        found = self.held[tuple(s if isinstance(s, int) else slice(*s) for s in steps)]
        assert found.numel() == count and found.dtype is dtype
        return tensor_of(bytes_of(found), dtype, (count,))

    def drop(self, number: int) -> None:
        self.dropped.append(number)


def leaf_of(shelf: Shelf) -> RemoteLeaf:
    held = shelf.held
    return RemoteLeaf(shelf, 5, 0, held.shape, held.dtype, held.device)


@pytest.mark.parametrize(
    "index", [(), (1,), (slice(0, 1),), (1, slice(1, 3)), (0, 2, slice(2, 9)), (1, 2, 3)]
)
def test_pieces_of_a_leaf_are_those_of_the_tensor(index: tuple[int | slice, ...]) -> None:
    leaf = leaf_of(Shelf(BASE))
    assert torch.equal(leaf[index], BASE[index])
    rows = leaf_of(Shelf(BASE)).rows(slice(1, 2))
    if index and index[0] in (1, slice(1, 3)):
        return
    assert rows.shape == BASE[1:2].shape
    first = (0, *index[1:]) if index and isinstance(index[0], int) else index
    assert torch.equal(rows[first], BASE[1:2][first])


def test_a_number_is_a_leaf_too() -> None:
    assert leaf_of(Shelf(torch.tensor(3.5)))[()] == 3.5


def test_a_result_is_dropped_with_its_last_leaf() -> None:
    shelf = Shelf(BASE)
    leaf = leaf_of(shelf)
    rows = leaf.rows(slice(0, 1))
    del leaf
    assert shelf.dropped == []
    del rows
    assert shelf.dropped == [5]
