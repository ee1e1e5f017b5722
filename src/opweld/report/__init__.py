"""One page of HTML that shows an account: times, kernels, the plan, sources, errors, checks.

It needs nothing beside itself: no network, no script. All text of the account is escaped, and a
policy in its head forbids a browser to load or to run anything, whatever the text may be.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from opweld import __version__
from opweld.account import Account
from opweld.report.accuracy import accuracy_of
from opweld.report.facts import checks_of, commands_of, environment_of, heading_of
from opweld.report.kernels import Kernel, figures_of, kernels_of, roofline_of
from opweld.report.listing import files_of, listings_of
from opweld.report.plan_graph import plan_graph
from opweld.report.times import times_of

FOLDER = Path(__file__).parent / "templates"
LARGEST_BYTES = 1_000_000
MOST_LINES = 150  # of a table
# Letters of sources on a page: less where it would become too large.
_ROOM = 240_000
_FRAME = (
    '<iframe title="opweld report" sandbox'
    ' style="width: 100%; height: 45rem; border: 1px solid #8886"'
    ' srcdoc="{page}"></iframe>'
)


def page(account: Account, here: str = "") -> str:
    """The page: a whole document of less than `LARGEST_BYTES`; `here` is what its links to itself
    begin with.

    Sources, and lines of long tables, that have no room are left out, and the page says so.
    """
    kernels, room = kernels_of(account), _ROOM
    while True:
        text = _template().render(here=here, **_shown(account, kernels, room), **_style())
        if len(text.encode()) < LARGEST_BYTES or not room:
            return text
        room = room // 2 if room > 4000 else 0


def frame(account: Account) -> str:
    """The page inside a frame, for a notebook: neither's style touches the other.

    Without an address of its own, a link to "#x" would lead to the notebook's.
    """
    return _FRAME.format(page=escape(page(account, "about:srcdoc")))


def _shown(account: Account, kernels: tuple[Kernel, ...], room: int) -> dict[str, Any]:
    files, taken = files_of(account.sources, kernels, room // 3)
    rest = room - taken
    checks = account.verdict.checks if account.verdict else ()
    return {
        "account": account,
        "version": __version__,
        "heading": heading_of(account),
        "times": times_of(account.timing) if account.timing else None,
        "kernels": kernels,
        "figures": figures_of(kernels),
        "most_lines": MOST_LINES,
        "roofline": roofline_of(kernels, account.timing) if account.timing else None,
        "graph": plan_graph(account.plan, kernels),
        "library": _library(account),
        "files": files,
        "files_left_out": [name for name in account.sources if name not in _names(files)],
        "listings": listings_of(kernels, account.kernel_texts, account.line_texts, rest),
        "accuracy": accuracy_of(checks),
        "checks": checks_of(checks),
        "environment": environment_of(account),
        "commands": commands_of(account),
    }


def _library(account: Account) -> list[tuple[str, str, str, int]]:
    """What stays PyTorch's, for which state, why, and how often."""
    kept = [row for row in account.plan if row.kind == "library" and row.reason]
    counts = Counter((row.label, row.variant or "the example call", row.reason) for row in kept)
    return [(*which, count) for which, count in counts.items()]


def _names(files: Any) -> set[str]:
    return {file.name for file in files}


@cache
def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


@cache
def _style() -> dict[str, Any]:
    """The style, and the policy that allows it by its digest, and nothing else."""
    text = (FOLDER / "style.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return {"style": Markup(text), "policy": Markup(policy)}
