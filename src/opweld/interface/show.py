"""What the terminal shows at the end of `opweld optimize`."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from opweld.compiled import Compiled, PlanRow
from opweld.judge import report
from opweld.pipeline import Delivery


def show_delivery(delivery: Delivery, console: Console) -> None:
    """What was made, what the judge found, and where the file is."""
    for note in delivery.notes:
        _line(console, note)
    if delivery.judgement is None:
        _show_plan(delivery.compiled, console)
        _line(console, f"Not verified (--no-check). ModelNew is in {delivery.out}")
        return
    judgement = replace(delivery.judgement, kernels=delivery.kernels)
    report.render(judgement, console, delivery.compiled.main_rows, str(delivery.out))


def _show_plan(compiled: Compiled, console: Console) -> None:
    """Each kernel with the ops it fused, and what was left to PyTorch and why."""
    if console.is_terminal:
        console.print(_plan_table(compiled))
        return
    for row in compiled.main_rows:
        parts = (f"{row.kind}, {' '.join(row.ops)}", row.reason, _bytes_text(row))
        _line(console, f"{row.name}: {'; '.join(part for part in parts if part)}")


def _plan_table(compiled: Compiled) -> Table:
    table = Table(title=f"Plan for {compiled.target}", title_justify="left")
    for heading in ("group", "kind", "ops", "reason", "bytes"):
        table.add_column(heading, overflow="fold")
    for row in compiled.main_rows:
        cells = (row.name, row.kind, " ".join(row.ops), row.reason, _bytes_text(row))
        table.add_row(*map(escape, cells))
    return table


def _bytes_text(row: PlanRow) -> str:
    """What must move and what does, where a kernel's form is known."""
    if row.must_bytes is None or row.moved_bytes is None:
        return ""
    return f"must move {row.must_bytes / 1e6:.2f} MB, moves {row.moved_bytes / 1e6:.2f} MB"


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
