"""What the stages print of row blocks, which only the CPU has; `make golden` rewrites the files."""

from __future__ import annotations

import pytest

from opweld.ir.check import check
from opweld.ir.kernels.kernel import RowBlocks
from opweld.ir.operator import operator_of
from opweld.ir.text import to_text
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render.host.row_blocks import row_blocks_run
from opweld.target import CPU
from tests.golden.test_golden import WRITE
from tests.golden.texts import HERE, small_graphs


def texts() -> dict[str, str]:
    plan = make_plan(small_graphs()["row_blocks"], CPU)
    check(plan)
    ((group, lowered),) = zip(plan.groups, lower(plan), strict=True)
    check(lowered)
    assert isinstance(lowered, RowBlocks) and group.tail is not None
    tail = operator_of(group.tail, lowered.tail)
    host = row_blocks_run(operator_of(group, lowered), tail, lowered)
    return {"cpu-plan.txt": to_text(plan), "cpu-kernel.txt": to_text(lowered), "host.cpp": host}


@pytest.mark.parametrize("file", ["cpu-plan.txt", "cpu-kernel.txt", "host.cpp"])
def test_text(file: str) -> None:
    path, text = HERE / "row_blocks" / file, texts()[file].rstrip("\n") + "\n"
    if WRITE:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
