"""Prints what a run comes to: a brief on a terminal's width, or everything with `--verbose`."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from opweld.compiled import Compiled, PlanRow
from opweld.interface.brief import Brief, Fact, KernelLine, of_delivery, of_judgement
from opweld.judge import report
from opweld.judge.values import Judgement
from opweld.pipeline import Delivery

LINES, LABEL = 25, 10
HEADS = ("kernel", "fuses", "ms", "speed")
NAME, FUSES, MS, SPEED = range(4)
NAME_WIDTH = 32


def show_delivery(delivery: Delivery, console: Console, verbose: bool = False) -> None:
    """What was made, what the judge found, where the file is, and what to do with it."""
    if verbose:
        _show_all(delivery, console)
    print_brief(of_delivery(delivery), console)


def show_judgement(
    judgement: Judgement, names: tuple[Path, Path], console: Console, verbose: bool = False
) -> None:
    """What the judge found of the pair of files `names`, the original's first."""
    if verbose:
        report.render(judgement, console)
    print_brief(of_judgement(judgement, names), console)


def print_brief(brief: Brief, console: Console) -> None:
    """On a terminal a table and paragraphs of at most 25 lines; elsewhere all, a fact a line."""
    if not console.is_terminal:
        _print_plain(brief, console)
        return
    width = console.width
    paragraphs = [(fact, _paragraph(fact, width)) for fact in brief.facts]
    taken = sum(max(1, -(-len(line) // width)) for _, lines in paragraphs for line in lines)
    kernels = _kernels(brief.kernels, max(1, LINES - 2 - taken))
    console.print(Text(brief.title, style="bold", overflow="ellipsis", no_wrap=True))
    if kernels:
        console.print(_table(kernels))
    for fact, lines in paragraphs:
        for k, line in enumerate(lines):
            _print_line(fact, fact.label if k == 0 else "", line, console)


def _print_line(fact: Fact, label: str, line: str, console: Console) -> None:
    text = Text.assemble((f"{label:{LABEL}}", "dim"), (line, fact.style))
    console.print(text, soft_wrap=True)


def _paragraph(fact: Fact, width: int) -> list[str]:
    """Lines of whole words; a word that is too long, a path say, stays whole."""
    room = max(20, width - LABEL)
    if not fact.lines:
        return [fact.text]
    if fact.lines == 1:  # as it stands in a file, its spaces too
        return [fact.text if len(fact.text) <= room else f"{fact.text[: room - 3]}..."]
    found = textwrap.wrap(
        fact.text,
        room,
        max_lines=fact.lines,
        placeholder=" ...",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return found or [""]


def _kernels(lines: tuple[KernelLine, ...], room: int) -> tuple[KernelLine, ...]:
    """As many as there is room for; the last says how many others there are."""
    if len(lines) <= room:
        return lines
    shown, others = lines[: room - 1], lines[room - 1 :]
    ms = sum(line.ms or 0.0 for line in others) or None
    return (*shown, KernelLine(f"{len(others)} others", "-v lists them", ms))


def _table(lines: tuple[KernelLine, ...]) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    cells = [_cells(line) for line in lines]
    shown = [k for k in range(len(HEADS)) if any(row[k] for row in cells)]
    for k in shown:
        right, ratio = k in (MS, SPEED), 1 if k == FUSES else None
        justify: JustifyMethod = "right" if right else "left"
        most = NAME_WIDTH if k == NAME else None
        table.add_column(
            HEADS[k],
            no_wrap=True,
            overflow="ellipsis",
            justify=justify,
            ratio=ratio,
            max_width=most,
        )
    for row in cells:
        table.add_row(*(Text(row[k]) for k in shown))
    return table


def _cells(line: KernelLine) -> tuple[str, str, str, str]:
    often = f" (x{line.calls})" if line.calls > 1 else ""
    ms = "" if line.ms is None else f"{line.ms:.4g}"
    return f"{line.name}{often}", line.fuses, ms, line.rate


def _print_plain(brief: Brief, console: Console) -> None:
    lines = [brief.title]
    for kernel in brief.kernels:
        name, fuses, ms, rate = _cells(kernel)
        told = (fuses, f"{ms} ms" if ms else "", rate)
        lines.append(f"{'Kernel':{LABEL}}{name}: {'; '.join(filter(None, told))}")
    lines += [f"{fact.label:{LABEL}}{fact.text}" for fact in brief.facts]
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _show_all(delivery: Delivery, console: Console) -> None:
    """Everything that was found out; the plan where nothing was judged."""
    for note in delivery.notes:
        console.print(Text(note), soft_wrap=True)
    if delivery.judgement is None:
        console.print(_plan_table(delivery.compiled))
        return
    judgement = replace(delivery.judgement, kernels=delivery.kernels)
    report.render(judgement, console, delivery.compiled.main_rows)


def _plan_table(compiled: Compiled) -> Table:
    table = Table(title=f"Plan for {compiled.target}", title_justify="left")
    for heading in ("group", "kind", "ops", "reason", "bytes"):
        table.add_column(heading)
    for row in compiled.main_rows:
        cells = (row.name, row.kind, " ".join(row.ops), row.reason, _bytes_text(row))
        table.add_row(*map(Text, cells))
    return table


def _bytes_text(row: PlanRow) -> str:
    """What must move and what does, where a kernel's form is known."""
    if row.must_bytes is None or row.moved_bytes is None:
        return ""
    return f"must move {row.must_bytes / 1e6:.2f} MB, moves {row.moved_bytes / 1e6:.2f} MB"
