"""Progress off a terminal is plain lines: each stage once, its messages below it."""

import io
import re

import pytest
from rich.console import Console

from opweld.interface.progress import JUDGED, STAGES, Progress


def test_plain_lines() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, width=40), verbose=True) as progress:
        for stage in ("capture", "graph", "plan", "source", "load"):
            progress.step(stage)
        progress.step("verify", "normal [bold]values[/], a long line that is not to be wrapped")
        progress.step("verify", "large values")
        progress.step("measure")
        progress.step("verify", "timed results")
    lines = re.sub(r"^ *[\d.]+ s", "t", stream.getvalue(), flags=re.M).splitlines()
    assert lines == [
        "t  [1/5] capture",
        "t  [2/5] plan",
        "t  [3/5] build",
        "t  [4/5] verify",
        "    check 1: normal [bold]values[/], a long line that is not to be wrapped",
        "    check 2: large values",
        "t  [5/5] measure",
        "    timed results",
    ]
    assert tuple(line.split()[-1] for line in lines if line.startswith("t")) == STAGES


def test_steps_are_left_out_where_nobody_asked_for_them() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream)) as progress:
        progress.step("verify", "own inputs")
        progress.step("measure", "timing eager")
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["verify", "measure"]


def test_a_terminal_shows_each_stage_its_time_and_what_is_done() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, force_terminal=True, width=80), JUDGED) as progress:
        progress.step("load", "importing m.py")
        progress.step("verify", "a check [b]")
        progress.step("verify", "another " * 20)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert re.search(r"\[1/3\] build +\d+\.\d s\n", text)
    assert re.search(r"\[2/3\] verify +\d+\.\d s  2 checks\n", text)
    assert "check 2: another" in text
    assert all(len(line) <= 80 for line in re.split(r"[\r\n]", text))


def test_a_stage_that_failed_has_no_time() -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError), Progress(Console(file=stream, force_terminal=True)) as progress:
        progress.step("capture")
        raise ValueError
    assert " s\n" not in stream.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_numbers_between_colons_are_no_emoji(terminal: bool) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=80)
    with Progress(console, verbose=True) as progress:
        progress.step("build", "m.py:100: built")
        progress.say("m.py:100: said")
    assert "m.py:100: built" in stream.getvalue() and "m.py:100: said" in stream.getvalue()


def test_an_estimate_stays_and_is_no_step() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream), verbose=True) as progress:
        progress.step("verify", "own inputs")
        progress.step("estimate", "a first estimate: ModelNew 1 ms, eager 2 ms")
        progress.step("verify", "repeated calls")
    lines = stream.getvalue().splitlines()
    assert lines[2:] == [
        "a first estimate: ModelNew 1 ms, eager 2 ms",
        "    check 2: repeated calls",
    ]


def test_a_second_round_begins_anew() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream), verbose=True) as progress:
        for stage in ("capture", "measure", "capture", "verify"):
            progress.step(stage, "x")
    assert stream.getvalue().count("[1/5] capture") == 2
    assert "check 1: x" in stream.getvalue()
