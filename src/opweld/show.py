"""What the terminal shows at the end of `opweld optimize`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from opweld.compiled import Compiled
from opweld.judge import report
from opweld.pipeline import Delivery


def show_delivery(delivery: Delivery, console: Console) -> None:
    """The plan, what the judge found, and where the file is."""
    console.print(plan_table(delivery.compiled))
    if delivery.judgement:
        report.render(delivery.judgement, console)
    else:
        console.print("Not verified: the judge was left out (--no-check).")
    for note in delivery.notes:
        console.print(note, markup=False, highlight=False)
    console.print(f"\nModelNew is in {delivery.out}", markup=False, highlight=False, soft_wrap=True)


def plan_table(compiled: Compiled) -> Table:
    """Each kernel with the ops it welded, and what was left to PyTorch and why."""
    table = Table(title=f"Plan for {compiled.target}", title_justify="left")
    table.add_column("kernel")
    table.add_column("kind")
    table.add_column("ops", justify="right")
    table.add_column("welded")
    table.add_column("why")
    for row in compiled.plan_rows:
        table.add_row(row.name, row.kind, str(len(row.ops)), " ".join(row.ops), row.reason)
    return table
