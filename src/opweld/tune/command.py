"""`opweld tune`, on the parent's side: starts the search, writes the table. Imports no torch."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opweld import __version__
from opweld.delivery import check_output, write_whole
from opweld.errors import BadTable, SearchFailed, UserError, Where
from opweld.model_file import read_source
from opweld.options import Options
from opweld.process.child import Finished, run_child
from opweld.process.worker import child_environment, read_answer, request_of
from opweld.tune.values import KINDS, Found, Search, found_from

COMMAND = (sys.executable, "-P", "-m", "opweld.tune.search")
SCHEMA_VERSION = 1
# Between the end of the search and that of its process: to write the answer.
GRACE_S = 20.0


def tune(
    path: Path,
    options: Options,
    asked: Search,
    on_event: Callable[[str, str], None] = lambda stage, message: None,
    command: Sequence[str] = COMMAND,
) -> Found:
    """What a search in a child process finds; nothing of it is left, and nothing is written.

    Raises:
        UserError: the model file or the table is bad, or this machine cannot run the kernels.
        SearchFailed: a kernel crashed or hung.
    """
    read_source(path)
    with tempfile.TemporaryDirectory(prefix="opweld-") as folder:
        request, answer = Path(folder, "request.json"), Path(folder, "answer.json")
        search = {"kinds": asked.kinds, "limit_s": asked.limit_s, "command": asked.command}
        request.write_text(json.dumps({**request_of(path, options), "search": search}), "utf-8")
        finished = run_child(
            [*command, str(request), str(answer)],
            time_limit_s=asked.limit_s + GRACE_S,
            # what is built to be measured is not kept
            environ={**child_environment(), "TORCH_EXTENSIONS_DIR": folder},
            on_event=lambda line: on_event(*line.split("\t", 1)) if "\t" in line else None,
            on_output=sys.stderr.buffer.write if options.debug else None,
            sandbox=options.chosen_sandbox,
            writable=(folder,),
        )
        if finished.timed_out or finished.status != 0 or not answer.exists():
            raise _died(path, asked, finished)
        return found_from(read_answer(answer)["found"])


def _died(path: Path, asked: Search, finished: Finished) -> UserError | SearchFailed:
    if finished.timed_out:
        return UserError(
            f"was not measured within {asked.limit_s:g} s",
            where=Where(str(path)),
            next_step="allow more with --limit SECONDS, or use --batch N for smaller inputs",
        )
    said = f" after printing {finished.last_line[:200]!r}" if finished.last_line else ""
    return SearchFailed(
        f"the process that measures {finished.ending()}{said}",
        where=Where(str(path)),
        next_step="try --kind pointwise or --kind contraction alone, and please report it",
    )


def kinds_of(kind: str | None) -> tuple[str, ...]:
    """The kinds of groups that `--kind` asks for: one, or all."""
    if kind is None:
        return KINDS
    if kind not in KINDS:
        raise UserError(f"there is no kind {kind!r}", next_step=f"use one of {', '.join(KINDS)}")
    return (kind,)


def check_table(options: Options) -> None:
    """Finds out before the search whether the table could be written after it."""
    check_output(options.table)


def apply(found: Found) -> None:
    """Writes the table with the proposed rows, in one step.

    Raises:
        BadTable: somebody has changed the table since it was read.
        OutputNotWritable: it cannot be written.
    """
    table = Path(found.table)
    if table.read_text("utf-8") != found.before:
        raise BadTable(
            "was changed while schedules were measured, and is left as it is",
            where=Where(found.table),
            next_step="run the command again",
        )
    write_whole(table, found.after)


def account(path: Path, asked: Search, found: Found, written: bool) -> dict[str, Any]:
    """What `--json` writes."""
    data = found.to_data()
    left_out = ("before", "after")
    return {
        "schema_version": SCHEMA_VERSION,
        "opweld": __version__,
        "model": str(path),
        "command": asked.command,
        **{name: value for name, value in data.items() if name not in left_out},
        "written": written,
    }
