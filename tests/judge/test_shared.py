"""What the referee sees of inputs in memory that it shares, and of memory that it reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from opweld.judge.load import Call
from opweld.judge.process.leaf import Place, elements, part_of
from opweld.judge.process.memory import ProcessMemory, extent_bytes
from opweld.judge.process.observe import PlacedInputs, changed_inputs
from opweld.judge.process.protocol import Raised
from opweld.judge.process.shared import Mapped, SharedMemory, new_shared_memory
from opweld.judge.verify.run import Run, of_outputs

Ends = tuple[SharedMemory, Mapped]


@pytest.fixture
def ends() -> Iterator[Ends]:
    descriptor = new_shared_memory()
    other = os.dup(descriptor)
    shared = SharedMemory(descriptor)
    yield shared, Mapped(other)
    shared.close()
    os.close(other)


def layouts() -> list[Tensor]:
    wide = torch.randn(6, 10)
    return [
        torch.randn(4, 5),
        wide[:, :7],
        torch.randn(3, 1).expand(3, 4),
        torch.randn(4, 6).t(),
        torch.arange(5),
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.randn(3, dtype=torch.complex64),
        torch.randn(9)[1:],
        torch.tensor([True, False]),
        torch.randn(5).bfloat16(),
    ]


def test_a_call_arrives_as_it_was_placed(ends: Ends) -> None:
    shared, mapped = ends
    call = Call((layouts(), 3), {"flag": True})
    placed = shared.place(call)
    arrived = mapped.call(placed.header, placed.text)
    assert arrived.args[1] == 3 and arrived.kwargs == {"flag": True}
    for given, there in zip(call.tensors(), arrived.tensors(), strict=True):
        assert given.dtype == there.dtype and given.stride() == there.stride()
        assert torch.equal(given, there)
        assert given.data_ptr() % 64 == there.data_ptr() % 64 or not given.numel()
    assert changed_inputs(placed) == () and placed.num_guards_changed() == 0


def test_tensors_in_one_memory_stay_so(ends: Ends) -> None:
    shared, mapped = ends
    base = torch.randn(8)
    placed = shared.place(Call((base[:5], base[3:]), {}))
    left, right = mapped.call(placed.header, placed.text).args
    left[4] = 7.0
    assert right[1] == 7.0
    assert changed_inputs(placed) == (0, 1)


def test_a_write_and_a_write_beside_are_seen(ends: Ends) -> None:
    shared, mapped = ends
    placed = shared.place(Call((torch.zeros(4, 4), torch.zeros(3)), {}), guarded=True)
    first, second = mapped.call(placed.header, placed.text).args
    second[2] = 1.0
    assert changed_inputs(placed) == (1,)
    first.as_strided((17,), (1,))[-1] = 0
    assert placed.num_guards_changed() == 4


def test_memory_is_reused_only_when_it_is_free(ends: Ends) -> None:
    shared, _ = ends
    one = shared.place(Call((torch.zeros(100),), {}))
    two = shared.place(Call((torch.ones(100),), {}))
    assert one.region[1] <= two.region[0]
    shared.free(one)
    three = shared.place(Call((torch.full((100,), 3.0),), {}))
    assert three.region == one.region and changed_inputs(two) == ()
    large = shared.place(Call((torch.zeros(2**20),), {}))
    assert changed_inputs(two) == changed_inputs(three) == changed_inputs(large) == ()


def run_of(*outputs: Tensor) -> Run:
    return of_outputs(list(outputs))


def test_what_the_original_does_not_write_must_not_be_written(ends: Ends) -> None:
    shared, mapped = ends
    inputs, original = PlacedInputs(shared), run_of(torch.zeros(2))
    placed = inputs.place(Call((torch.zeros(4),), {}), same_memory=False)
    (x,) = mapped.call(placed.header, placed.text).args
    assert inputs.seen(1, run_of(torch.zeros(2)), original).changed_inputs == ()
    x[0] = 1.0
    with pytest.raises(Raised, match="after it has returned"):
        inputs.require_untouched()
    placed = inputs.place(Call((torch.zeros(4),), {}), same_memory=False)
    mapped.call(placed.header, placed.text).args[0].add_(1)
    with pytest.raises(Raised, match="writes to its input 0"):
        inputs.seen(2, run_of(torch.zeros(2)), original)
    like = replace(original, changed_inputs=(0,))
    found = inputs.seen(3, run_of(torch.zeros(2)), like)
    assert found.names[-1] == "input 0 afterwards" and torch.equal(found.leaves[-1], torch.ones(4))


def test_new_values_in_the_same_memory_are_what_is_watched(ends: Ends) -> None:
    shared, mapped = ends
    inputs, original = PlacedInputs(shared), run_of(torch.zeros(2))
    first = inputs.place(Call((torch.zeros(4),), {}), same_memory=False)
    (x,) = mapped.call(first.header, first.text).args
    inputs.seen(1, run_of(torch.zeros(2)), original)
    inputs.require_untouched()
    second = inputs.place(Call((torch.ones(4),), {}), same_memory=True)
    x.copy_(mapped.call(second.header, second.text).args[0])
    assert inputs.seen(2, run_of(torch.zeros(2)), original).changed_inputs == ()
    inputs.overwrite(0)
    assert not torch.equal(x, torch.ones(4))
    inputs.overwrite(0)
    assert torch.equal(x, torch.ones(4))


def test_elements_are_read_where_they_lie() -> None:
    memory = ProcessMemory(os.getpid())
    for t in (*layouts(), torch.randn(3, dtype=torch.complex64).conj()):
        place = Place(t.data_ptr(), t.stride(), t.is_conj(), t.is_neg())
        extent = extent_bytes(t.shape, t.stride(), t.element_size())
        assert extent is not None
        read = memory.read(place.address, extent)
        assert torch.equal(elements(read, place, t.shape, t.dtype), t.resolve_conj())
    with pytest.raises(OSError):
        memory.read(8, 16)
    memory.close()


def test_a_part_of_a_tensor_has_a_place_of_its_own() -> None:
    t = torch.randn(4, 5, 6).transpose(0, 1)
    place = Place(t.data_ptr(), t.stride())
    for index, part in (
        ([2], t[2]),
        ([[1, 3]], t[1:3]),
        ([2, 1], t[2, 1]),
        ([2, [1, 3]], t[2, 1:3]),
    ):
        found = part_of(place, index, t.dtype)
        assert found.address == part.data_ptr() and found.strides == part.stride()


def test_layouts_that_are_mostly_gaps_are_not_read_whole() -> None:
    assert extent_bytes((2, 2), (10**9, 1), 4) is None
    assert extent_bytes((0, 5), (10**9, 1), 4) == 0
    assert extent_bytes((3, 4), (4, 1), 4) == 48
