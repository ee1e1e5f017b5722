"""What the terminal shows at the end of `opweld tune`: the classes, and the diff of the table."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from opweld.tune.values import Found, Outcome, Trial

HEADINGS = ("groups", "class", "current", "fastest", "second", "copy", "")


def show(found: Found, written: bool, console: Console) -> None:
    """A row a class, then what is proposed, then what became of it."""
    for note in found.notes:
        _line(console, f"left out: {note}")
    if not found.outcomes:
        _line(console, "There is no group to tune")
    elif console.is_terminal:
        console.print(_table(found))
    else:
        for outcome in found.outcomes:
            _line(console, _as_line(outcome))
    if found.diff:
        _line(console, found.diff)
    _line(console, _conclusion(found, written))


def _conclusion(found: Found, written: bool) -> str:
    if not found.rows:
        return f"No row is proposed; {found.table} stays as it is"
    rows = "One row" if len(found.rows) == 1 else f"{len(found.rows)} rows"
    if written:
        return f"{rows} written to {found.table}"
    return f"{rows} proposed for {found.table}; --write applies the diff"


def _table(found: Found) -> Table:
    title = f"Schedules for {found.target} on {found.device}, microseconds"
    table = Table(title=title, title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for outcome in found.outcomes:
        table.add_row(*map(escape, _cells(outcome)))
    return table


def _cells(outcome: Outcome) -> tuple[str, ...]:
    first, second = _fastest(outcome)
    copy = f"{outcome.copy_us:.4g}" if outcome.copy_us is not None else ""
    return (
        "\n".join(outcome.groups),
        f"{outcome.kind} {outcome.type}\n{outcome.shape}",
        _figures(outcome.trial(outcome.current)) or outcome.current,
        _figures(first),
        _figures(second),
        copy,
        outcome.said,
    )


def _as_line(outcome: Outcome) -> str:
    names = ("current", "fastest", "second", "copy")
    head, shape, *figures, said = (cell.replace("\n", " ") for cell in _cells(outcome))
    parts = [f"{name} {cell}" for name, cell in zip(names, figures, strict=True) if cell]
    return f"{head}: {shape}; {', '.join(parts)}; {said}"


def _fastest(outcome: Outcome) -> tuple[Trial | None, Trial | None]:
    """The winner and the runner-up of the first run, with the figures that count."""
    trials = [*(outcome.trial(each.schedule) for each in outcome.trials), None, None]
    return trials[0], trials[1]


def _figures(trial: Trial | None) -> str:
    if trial is None:
        return ""
    return f"{trial.schedule}\n{trial.us:.4g} ({trial.p10_us:.4g} to {trial.p90_us:.4g})"


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
