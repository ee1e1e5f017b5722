"""The mutation score of an account: how many of the mutants of each class are caught, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.mutation.explained import explanation
from benchmarks.mutation.rules import CLASSES

HEADS = (
    *("class", "mutants", "caught in `call`", "in `full` alone", "explained", "open"),
    *("caught of all", "score"),
)
Case = Mapping[str, Any]


def counted(cases: Iterable[Case]) -> list[Case]:
    """Those that are another program: their code differs from the sound file's."""
    return [case for case in cases if case["outcome"] in ("caught", "survived")]


def score_table(account: Mapping[str, Any]) -> list[str]:
    """The lines of a Markdown table, a row for each class and one for all."""
    cases = counted(account["mutants"])
    rows = [(kind, [case for case in cases if case["kind"] == kind]) for kind in CLASSES]
    lines = [_line(HEADS), "|---" * len(HEADS) + "|"]
    lines += [_line(_row(kind, some)) for kind, some in rows if some]
    return [*lines, _line(_row("all", cases))]


def emulated_table(account: Mapping[str, Any]) -> list[str]:
    """As `score_table`, of mutants for which there is one scope."""
    cases = counted(account["mutants"])
    lines = [_line(("class", "mutants", "caught", "explained", "open")), "|---" * 5 + "|"]
    for kind in (*CLASSES, "all"):
        some = [case for case in cases if kind in (case["kind"], "all")]
        explained = sum(explanation(case) is not None for case in some)
        caught = sum(case["outcome"] == "caught" for case in some)
        if some:
            lines.append(
                _line((kind, len(some), caught, explained, len(some) - caught - explained))
            )
    return lines


def _row(kind: str, cases: list[Case]) -> list[str]:
    where = Counter(case.get("caught_in") for case in cases)
    explained = sum(explanation(case) is not None for case in cases)
    caught, judged = len(cases) - where[None], len(cases) - explained
    shares = [f"{caught / count:.1%}" if count else "" for count in (len(cases), judged)]
    numbers = (len(cases), where["call"], where["full"], explained, judged - caught)
    return [kind, *map(str, numbers), *shares]


def checks_table(account: Mapping[str, Any]) -> list[str]:
    """How many mutants each check was the first to catch, the busiest first."""
    by = Counter(case["by"] for case in account["mutants"] if case["outcome"] == "caught")
    rows = sorted(by.items(), key=lambda row: (-row[1], row[0]))
    return [_line(("first check that fails", "mutants")), "|---|---|", *map(_line, rows)]


def explained_table(account: Mapping[str, Any]) -> list[str]:
    """Why survivors that are explained pass, and how many of them each reason is for."""
    reasons = Counter(explanation(case) for case in account["mutants"])
    del reasons[None]
    rows = sorted(reasons.items(), key=lambda row: (-row[1], str(row[0])))
    return [_line(("why it passes", "mutants")), "|---|---|", *map(_line, rows)]


def open_table(account: Mapping[str, Any]) -> list[str]:
    """The survivors without an explanation: what they change, line by line."""
    heads = ("model", "class", "as it was", "the mutant")
    lines = [_line(heads), "|---" * len(heads) + "|"]
    for case in account["mutants"]:
        if case["outcome"] == "survived" and explanation(case) is None:
            sides = [[d[2:] for d in case["difference"] if d[0] == sign] for sign in "-+"]
            cells = [f"`{' '.join(side).strip() or ' '}`".replace("|", "\\|") for side in sides]
            lines.append(_line((case["model"], case["kind"], *cells)))
    return lines


def survivors(account: Mapping[str, Any]) -> list[str]:
    """The mutants that pass and have no explanation, with what they change."""
    lines = []
    for case in account["mutants"]:
        if case["outcome"] == "survived" and explanation(case) is None:
            lines.append(f"{case['model']}:{case['line']}: {case['kind']}: {case['rule']}")
            lines += [f"    {line}" for line in case["difference"]]
    return lines


def brief(case: Case) -> str:
    """A line for each mutant on the way, with the difference where it passed."""
    how = f"{case['outcome']} {case.get('caught_in') or ''} {case.get('by', '')}".strip()
    head = f"{case['model']}:{case['line']} {case['kind']}, {case['rule']}: {how}"
    lines = case["difference"] if case["outcome"] == "survived" else ()
    return "\n    ".join([f"{head} ({case.get('seconds', 0)} s)", *lines])


def _line(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


TABLES = {
    "score": score_table,
    "emulated": emulated_table,
    "checks": checks_table,
    "explained": explained_table,
    "open": open_table,
}
