"""Which operands a skeleton can be given, by the addresses of what a kernel reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.plan.plans import Make, plan_of

from opweld.ir.expr import Size, symbol
from opweld.ir.kernels.kernel import Definition, Kernel, Load, Multiplied
from opweld.ir.kernels.operand import Cut
from opweld.ir.plan import Group
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.lower.axes import axes_of_epilogue, operands_of

ROW, COLUMN, ROW_STEP, STEP = (symbol(name) for name in ("i0", "i1", "x_stride0", "x_stride1"))


def kernel_of(size: int, width: int) -> tuple[Group, Kernel]:
    """Of one operand x as large as the result."""
    m = Make()
    plan = plan_of(m.neg(m.x("x", size, width)))
    (group,) = plan.groups
    return group, lower(plan)[0].strided


def reading(address: Size, size: int = 6, width: int = 6) -> tuple[Group, Kernel]:
    """A kernel that reads x at an address."""
    group, kernel = kernel_of(size, width)
    (load,) = kernel.definitions
    assert isinstance(load, Load)
    return group, replace(kernel, definitions=(replace(load, address=address),))


def test_an_element_of_each_row() -> None:
    (operand,) = operands_of(*reading(ROW * ROW_STEP + STEP * 3)) or ()
    assert (operand.along, operand.cuts) == ((0, 1), (Cut(1, 3, 1),))


def test_what_begins_further_on_is_a_part_however_long() -> None:
    """There is no such element of x, which whoever is given that part refuses."""
    (operand,) = operands_of(*reading(ROW * ROW_STEP + (COLUMN + 1) * STEP)) or ()
    assert operand.cuts == (Cut(1, 1, 6),)


@pytest.mark.parametrize(
    "address",
    [
        ROW * ROW_STEP + ROW * STEP,
        (ROW + COLUMN) * ROW_STEP,
        ROW * ROW_STEP + COLUMN * STEP * 2,
        ROW * ROW_STEP + COLUMN * STEP + symbol("s0") * STEP,
        ROW * ROW_STEP + COLUMN * STEP + 1,
    ],
    ids=["the diagonal", "along both axes", "every second", "from a named place", "beside it"],
)
def test_other_places_are_no_operand(address: Size) -> None:
    assert operands_of(*reading(address)) is None
    group, kernel = reading(address)
    product: Definition = Multiplied("product_1", DType.F32)
    beside = replace(kernel, definitions=(*kernel.definitions, product))
    assert axes_of_epilogue(group, beside) is None


def test_what_is_not_read_is_no_operand() -> None:
    group, kernel = kernel_of(6, 6)
    assert operands_of(group, replace(kernel, definitions=())) is None


def test_an_epilogue_reads_whole_operands() -> None:
    product: Definition = Multiplied("product_1", DType.F32)
    whole, part = ROW * ROW_STEP + COLUMN * STEP, ROW * ROW_STEP + STEP * 3
    for address, axes in ((whole, ((0, 1),)), (part, None)):
        group, kernel = reading(address)
        beside = replace(kernel, definitions=(*kernel.definitions, product))
        assert axes_of_epilogue(group, beside) == axes
