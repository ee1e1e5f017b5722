from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.ir.plan import PointwiseSchedule
from opweld.ir.types import DType
from opweld.target import CPU, SM_80, SM_90A

from .plans import BATCH, Make, kernels_of, plan_of


@pytest.mark.parametrize(
    ("dtype", "lanes"),
    [(DType.F64, 2), (DType.F32, 4), (DType.F16, 8), (DType.BF16, 8), (DType.I8, 16)],
)
def test_an_access_is_sixteen_bytes_wide(dtype, lanes):
    m = Make()
    (group,) = plan_of(m.neg(m.x("x", BATCH, 16, dtype=dtype))).groups
    assert group.schedule == PointwiseSchedule(lanes, 1, 128)


def test_the_widest_type_decides():
    m = Make()
    x = m.x("x", BATCH, 16)
    (group,) = plan_of(m.gt(x, 0.0)).groups
    assert group.schedule.lanes == 4


def test_more_operands_leave_fewer_accesses_of_each():
    m = Make()
    x, y, z = (m.x(name, BATCH, 16) for name in "xyz")
    target = replace(SM_90A, loads_in_flight=4)
    one, two, three = m.neg(x), m.add(x, y), m.add(m.add(x, y), z)
    assert [
        kernels_of(plan_of(result, target=target))[0].schedule.vectors
        for result in (one, two, three)
    ] == [4, 2, 1]


def test_the_target_gives_threads_and_width():
    m = Make()
    result = m.neg(m.x("x", BATCH, 16))
    assert kernels_of(plan_of(result, target=SM_80))[0].schedule.threads == 128
    assert kernels_of(plan_of(result, target=CPU))[0].schedule == PointwiseSchedule(16, 1, 1)


def held(*shape, target=SM_90A):
    """What is held of a scale of this shape for 16 rows of 4 by 2^20 elements, 16 MiB each."""
    m = Make()
    x, scale, shift = m.x("x", 16, 4, 2**20), m.x("scale", *shape), m.x("shift", 1, 4, 1)
    (group,) = kernels_of(plan_of(m.add(m.mul(x, scale), shift), target=target))
    return [group.inputs[index].attrs.access for index in group.held]


def test_what_repeats_behind_more_than_the_cache_has_is_held():
    assert held(4, 2**20) == ["scale"]
    assert held(1, 4, 2**20) == ["scale"]
    assert held(2**20) == []  # 12 MiB lie between
    assert held(16, 4, 2**20) == []  # it does not repeat
    assert held(16, 1, 1) == []
    assert held(4, 2**20, target=replace(SM_90A, cache_bytes=2**26)) == []
    assert held(4, 2**20, target=CPU) == []
