"""The files that a command is asked to write beside its result: the account and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from opweld.account import Account
from opweld.delivery import check_output, json_text, write_json, write_whole
from opweld.errors import OutputNotWritable, Where
from opweld.judge.values import to_plain
from opweld.report import page

STANDARD_OUTPUT = Path("-")


class Asked:
    """Where the account goes as JSON, and where as a page; "-" is standard output.

    Raises:
        OutputNotWritable: one of the two cannot be written or is a file of Python, or both are one;
            before the work, not after it.
    """

    def __init__(self, json: Path | None, html: Path | None = None) -> None:
        self._json, self._html = json, html
        if json and html and json.resolve() == html.resolve():
            raise OutputNotWritable(
                "is named by --json and by --html", where=Where(str(html)), next_step="name two"
            )
        for out in (json, html):
            if out and out != STANDARD_OUTPUT:
                if out.suffix == ".py":  # a model's, mostly: it would be lost
                    says = (
                        "is a file of Python, which an account or a report would take the place of"
                    )
                    where = Where(str(out))
                    raise OutputNotWritable(says, where=where, next_step="name another file")
                check_output(out)

    @property
    def console(self) -> Console:
        """Where a result is shown: beside a file on standard output, on standard error."""
        return Console(stderr=STANDARD_OUTPUT in (self._json, self._html))

    def write(self, account: Account) -> None:
        self.write_data(dict(to_plain(account)))
        if self._html:
            write_page(self._html, account)

    def write_data(self, data: dict[str, Any]) -> None:
        """The JSON alone."""
        if self._json == STANDARD_OUTPUT:
            print(json_text(data), end="")
        elif self._json:
            write_json(self._json, data)


def write_page(out: Path, account: Account) -> None:
    """The report of an account, at a place or on standard output."""
    text = page(account)
    if out == STANDARD_OUTPUT:
        print(text)
    else:
        write_whole(out, text)
