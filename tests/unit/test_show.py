"""What the terminal shows where nothing was judged: the plan, row by row."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from opweld.compiled import Compiled, PlanRow
from opweld.interface.show import show_delivery
from opweld.pipeline import Delivery

ROWS = (
    PlanRow(
        "k1_exp", "pointwise", ("exp", "mul"), "one input", must_bytes=8000000, moved_bytes=12500000
    ),
    PlanRow("sort", "library", ("call",), "[sort] has no kernel"),
    PlanRow("k1_exp_bfloat16", "pointwise", ("exp", "mul"), "x", variant="autocast bfloat16"),
)
DELIVERY = Delivery(Path("m.py"), Path("m_new.py"), Compiled("", "cpu", ROWS), None, ("A note",))


def shown(terminal: bool) -> str:
    stream = io.StringIO()
    show_delivery(DELIVERY, Console(file=stream, force_terminal=terminal, width=140))
    return stream.getvalue()


def test_plain_lines_off_a_terminal() -> None:
    assert shown(terminal=False).splitlines() == [
        "A note",
        "k1_exp: pointwise, exp mul; one input; must move 8.00 MB, moves 12.50 MB",
        "sort: library, call; [sort] has no kernel",
        "Not verified (--no-check). ModelNew is in m_new.py",
    ]


def test_a_table_on_a_terminal() -> None:
    text = shown(terminal=True)
    for word in (
        "Plan for cpu",
        "k1_exp",
        "exp mul",
        "one input",
        "8.00 MB",
        "12.50",
        "[sort] has no kernel",
    ):
        assert word in text
    assert "bfloat16" not in text
