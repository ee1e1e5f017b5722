"""The end of a run at 80 columns, as golden text; what must hold of it at any width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.golden.test_golden import WRITE
from tests.unit.terminal import CASES, shown

FOLDER = Path(__file__).parent / "terminal"


@pytest.mark.parametrize("case", CASES)
def test_golden_text_at_80_columns(case: str) -> None:
    file = FOLDER / f"{case}.txt"
    found = "\n".join(line.rstrip() for line in shown(case).splitlines()) + "\n"
    if WRITE:
        file.parent.mkdir(exist_ok=True)
        file.write_text(found, "utf-8")
    assert found == file.read_text("utf-8")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_at_most_25_lines_of_whole_words(case: str, width: int) -> None:
    lines = shown(case, width).splitlines()
    assert len(lines) <= 25
    assert all(len(line) <= width for line in lines)
    whole = set(re.findall(r"\S+", shown(case, terminal=False)))
    told = {word.removesuffix("...").rstrip("…") for line in lines for word in line.split()}
    known = ("...", "", "kernel", "fuses", "ms", "speed", "-", "-v", "lists", "them", "others")
    unknown = [
        word
        for word in told - whole - set(known)
        if not any(other.startswith(word) for other in whole) and not re.fullmatch(r"[\d.]+", word)
    ]
    assert unknown == []


def test_numbers_between_colons_are_no_emoji() -> None:
    for terminal in (True, False):
        assert "new.cu:100: error: [/bold] is no name" in shown("wrong", terminal=terminal)


def test_off_a_terminal_a_fact_is_a_line_and_nothing_is_left_out() -> None:
    text = shown("many", width=40, terminal=False)
    assert len(re.findall(r"^Kernel ", text, re.M)) == 40
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("case", "colour"),
    [("optimized", "32"), ("slower", "33"), ("unverified", "33"), ("wrong", "31")],
)
def test_the_colour_of_the_verdict_means_it(case: str, colour: str) -> None:
    text = shown(case, colours="standard")
    verdict = next(line for line in text.splitlines() if "Verdict" in line)
    assert f"\x1b[1;{colour}m" in verdict
    assert "\x1b[1;32m" not in text or colour == "32"
