"""The table of measured schedules as text: rows there and back, changes as a diff, bad lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opweld.errors import BadTable
from opweld.ir.kernels.product import Mode
from opweld.ir.measured import Maker, Measured, PointwiseClass, ProductClass
from opweld.ir.plan import PointwiseSchedule
from opweld.ir.types import DType
from opweld.schedules import HEADING, OWN_TABLE, diff, line_of, parse, read_table, with_rows

ORIGIN = ("NVIDIA H200", "2026-11-21", "2.11.0+cu130", "opweld tune examples/gelu.py")
POINTWISE = Measured(
    "sm_90a",
    PointwiseClass(DType.F32, 26, 1, 1, "memory"),
    PointwiseSchedule(4, 2, 256),
    129.25,
    PointwiseSchedule(4, 1, 128),
    133.0,
    *ORIGIN,
)
PRODUCT = Measured(
    "sm_90a",
    ProductClass(Mode.FAITHFUL, 10, 13, 13, 0, held=True, tail=True),
    Maker.OURS,
    571.2,
    Maker.LIBRARY,
    2835.0,
    *ORIGIN,
)
LINE = line_of(POINTWISE)


def test_a_row_is_a_readable_line() -> None:
    assert LINE == (
        "pointwise | sm_90a | f32 | elems 2^26 reads 1 writes 1 limit memory | "
        "vector width 4, 2 in flight, 256 threads | 129.2 | "
        "vector width 4, 1 in flight, 128 threads | 133 | "
        "NVIDIA H200 | 2026-11-21 | 2.11.0+cu130 | opweld tune examples/gelu.py"
    )
    assert line_of(PRODUCT).startswith(
        "contraction | sm_90a | faithful | m 2^10 n 2^13 k 2^13 batches 2^0 held tail | "
        "ours | 571.2 | library | 2835 | "
    )


def test_rows_come_back() -> None:
    rows = (replace(POINTWISE, us=129.2), PRODUCT)
    text = with_rows("", rows)
    assert text.startswith(HEADING)
    assert parse(text, "table") == rows


def test_words_that_would_break_a_line_are_changed() -> None:
    line = line_of(replace(POINTWISE, device="A | B", command="opweld tune 'a\nb.py'"))
    assert "| A / B |" in line and line.endswith("| opweld tune 'a b.py'")


def test_a_row_takes_the_place_of_its_class_and_leaves_all_else() -> None:
    text = f"# above\n{LINE}\n\n# below\n{line_of(PRODUCT)}\n"
    faster = replace(POINTWISE, schedule=PointwiseSchedule(8, 1, 128), us=120.0)
    other = replace(POINTWISE, target="sm_80")
    changed = with_rows(text, (faster, other))
    assert changed.splitlines() == [
        "# above", line_of(faster), "", "# below", line_of(PRODUCT), line_of(other),
    ]  # fmt: skip


def test_the_diff_has_the_lines_that_change() -> None:
    before = f"{HEADING}{LINE}\n"
    after = with_rows(before, (replace(POINTWISE, us=120.0), PRODUCT))
    lines = diff(before, after, "schedules.txt").splitlines()
    assert lines[:2] == ["--- schedules.txt (now)", "+++ schedules.txt (proposed)"]
    assert [line for line in lines[2:] if line[0] in "+-"] == [
        f"-{LINE}",
        f"+{line_of(replace(POINTWISE, us=120.0))}",
        f"+{line_of(PRODUCT)}",
    ]
    assert diff(before, before, "schedules.txt") == ""


def test_the_package_has_a_table_that_can_be_read() -> None:
    keys = [row.key for row in read_table(OWN_TABLE)]
    assert len(set(keys)) == len(keys)
    assert OWN_TABLE.read_text("utf-8").startswith(HEADING)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pointwise |", "reduction |", "no kind 'reduction'"),
        ("| f32 |", "| f33 |", "no element type 'f33'"),
        ("elems 2^26", "elems 67108864", "has not the form 'elems 2^E reads R"),
        (
            "vector width 4, 2 in flight",
            "vector width 3, 2 in flight",
            "no kernel can have 'vector width 3, 2 in flight",
        ),
        (
            "vector width 4, 2 in flight",
            "vector width four, 2 in flight",
            "has not the form 'vector width L",
        ),
        ("| 129.2 |", "| fast |", "'fast' is no number of microseconds"),
        ("| 129.2 |", "| -1 |", "'-1' is no number of microseconds"),
        ("| 129.2 |", "| nan |", "'nan' is no number of microseconds"),
        ("| 2026-11-21 |", "| last week |", "'last week' is no date"),
        ("| 2026-11-21 |", "| 20261121 |", "'20261121' is no date"),
        ("| NVIDIA H200 |", "| |", "its field 'device' is empty"),
        (" | 2.11.0+cu130", "", "it has 11 fields, not 12"),
    ],
)
def test_a_bad_row_is_one_sentence_with_its_line(old: str, new: str, said: str) -> None:
    assert old in LINE
    text = f"# heading\n\n{LINE.replace(old, new, 1)}\n"
    with pytest.raises(BadTable) as caught:
        parse(text, "own.txt")
    assert str(caught.value).startswith("own.txt:3: is no row of measured schedules: ")
    assert said in str(caught.value) and str(caught.value).endswith("mend or delete the line")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("faithful", "exact", "no mode 'exact'"),
        ("held tail", "kept tail", "has not the form 'm 2\\^M"),
        ("| ours |", "| us |", "'us' is neither ours nor library"),
    ],
)
def test_a_bad_row_of_a_product(old: str, new: str, said: str) -> None:
    with pytest.raises(BadTable, match=said):
        parse(line_of(PRODUCT).replace(old, new, 1), "own.txt")


def test_a_class_has_one_row() -> None:
    text = f"{LINE}\n{line_of(PRODUCT)}\n{line_of(replace(POINTWISE, us=1.0))}\n"
    with pytest.raises(BadTable, match=r"^t:3: .* line 1 has a row for the same class"):
        parse(text, "t")


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadTable, match="there is no such table"):
        read_table(tmp_path / "none.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadTable, match="cannot be read as a table"):
        read_table(tmp_path / "bytes.txt")
