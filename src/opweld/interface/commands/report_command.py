"""`opweld report`: a page of an account that was written before; nothing is run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opweld.delivery import check_output
from opweld.errors import OutputNotWritable, Where
from opweld.interface.arguments import Debug
from opweld.interface.asked import STANDARD_OUTPUT, write_page
from opweld.interface.exits import exit_with
from opweld.report.read import read_account

Recorded = Annotated[
    Path,
    typer.Argument(metavar="ACCOUNT.json", help="What `optimize` or `check` wrote with --json."),
]
Page = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="The page; - is standard output. Default: ACCOUNT.html."
    ),
]


def report_command(recorded: Recorded, html: Page = None, debug: Debug = False) -> None:
    """Make a page of the account of a run: times, kernels, plan, sources, errors, checks.

    It is one file that needs no network. Nothing is run again.
    """

    def run() -> int:
        account = read_account(recorded)
        out = html or recorded.with_suffix(".html")
        if out == STANDARD_OUTPUT:
            write_page(out, account)
            return 0
        if out.exists() and out.samefile(recorded):
            raise OutputNotWritable(
                "is the account itself",
                where=Where(str(out)),
                next_step="name another file with --html",
            )
        check_output(out)
        write_page(out, account)
        print(f"{out}: {out.stat().st_size / 1000:.0f} kB")
        return 0

    exit_with(run, debug)
