"""What is known of the operands of a call (device/elements/operands.cuh)."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulation.emulate import Shifted, emulate

from opweld.device import pieces

LOOK = """
extern "C" int look(const int64_t* table, const void* x, const void* y, int64_t* told, void*) {
  TensorView operands[2];
  const void* data[] = {x, y};
  for (int i = 0; i < 2; ++i, table += 2 + 2 * table[1]) {
    operands[i] = {const_cast<void*>(data[i]), int(table[0]), int(table[1]), table + 2,
                   table + 2 + table[1]};
  }
  const op::Operands call(operands, {{op::type_of<float>, {2, 3}}, {op::type_of<double>, {4}}});
  told[0] = call.misfit, told[1] = call.aligned, told[2] = call.contiguous, told[3] = call.reach;
  return 0;
}
"""
TEXT = "\n".join(
    ["#include <cuda_runtime.h>"]
    + [*pieces(["Operands", "type_of_float", "type_of_double"], "cuda"), LOOK]
)
FLOAT, DOUBLE = 6, 7
X, Y = [FLOAT, 2, 2, 3, 3, 1], [DOUBLE, 1, 4, 1]


def look(
    x: list[int] = X, y: list[int] = Y, shifts: tuple[int, int] = (0, 0)
) -> tuple[int, bool, bool, int]:
    """misfit, aligned, contiguous and reach; an operand begins so many bytes behind 16 of them."""
    arrays = [np.zeros(8, np.float64) for _ in range(2)]
    given = [Shifted(a, n) if n else a for a, n in zip(arrays, shifts, strict=True)]
    told = np.zeros(4, np.int64)
    emulate(TEXT, "look", [np.array([*x, *y], np.int64), *given, told])
    misfit, aligned, contiguous, reach = map(int, told)
    return misfit, bool(aligned), bool(contiguous), reach


def test_contiguous_operands() -> None:
    assert look() == (0, True, True, 5)


@pytest.mark.parametrize("shifts", [(4, 0), (8, 0), (0, 8), (4, 8)])
def test_each_operand_is_aligned_or_none(shifts: tuple[int, int]) -> None:
    assert look(shifts=shifts) == (0, False, True, 5)


@pytest.mark.parametrize(
    ("x", "contiguous", "reach"),
    [
        ([FLOAT, 2, 2, 3, 1, 2], False, 5),  # transposed
        ([FLOAT, 2, 2, 3, 8, 1], False, 10),  # padded rows
        ([FLOAT, 2, 2, 3, 0, 1], False, 3),  # expanded: the other operand reaches further
        ([FLOAT, 2, 2, 3, 1 << 33, 1], False, (1 << 33) + 2),
    ],
)
def test_strides(x: list[int], contiguous: bool, reach: int) -> None:
    assert look(x) == (0, True, contiguous, reach)


def test_the_stride_of_one_element_says_nothing() -> None:
    text = TEXT.replace("{2, 3}}", "{1, 3}}")
    told = np.zeros(4, np.int64)
    table = np.array([FLOAT, 2, 1, 3, 77, 1, *Y], np.int64)
    emulate(text, "look", [table, np.zeros(8), np.zeros(8), told])
    assert told.tolist() == [0, 1, 1, 3]


@pytest.mark.parametrize(
    ("x", "y", "misfit"),
    [
        ([DOUBLE, *X[1:]], Y, -1),
        ([FLOAT, 2, 2, 4, 4, 1], Y, -1),
        ([FLOAT, 2, 1, 3, 3, 1], Y, -1),
        ([FLOAT, 1, 2, 1], Y, -1),
        ([FLOAT, 3, 2, 3, 1, 3, 1, 1], Y, -1),
        (X, [FLOAT, 1, 4, 1], -2),
        (X, [DOUBLE, 1, 5, 1], -2),
        (X, [DOUBLE, 0], -2),
        ([DOUBLE, *X[1:]], [DOUBLE, 1, 5, 1], -1),
    ],
)
def test_the_first_that_does_not_fit(x: list[int], y: list[int], misfit: int) -> None:
    assert look(x, y)[0] == misfit
