"""Progress off a terminal is plain lines: each stage once, its messages below it."""

import io
import re

from rich.console import Console

from opweld.interface.progress import STAGES, Progress


def test_plain_lines() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, force_terminal=False, width=40)) as progress:
        for stage in ("capture", "graph", "plan", "source", "load"):
            progress.step(stage)
        progress.step("verify", "normal [bold]values[/], a long line that is not to be wrapped")
        progress.step("verify", "large values")
        progress.step("measure")
    lines = re.sub(r"\[ *[\d.]+ s\]", "[t]", stream.getvalue()).splitlines()
    assert lines == [
        "[t] capture",
        "[t] plan",
        "[t] build",
        "[t] verify",
        "    normal [bold]values[/], a long line that is not to be wrapped",
        "    large values",
        "[t] measure",
    ]
    assert tuple(line.removeprefix("[t] ") for line in lines if line.startswith("[t]")) == STAGES


def test_a_terminal_shows_the_time_of_each_stage() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, force_terminal=True, width=80)) as progress:
        progress.step("capture")
        progress.step("plan")
    text = stream.getvalue()
    assert re.search(r"capture +\d+\.\d s", text) and re.search(r"plan +\d+\.\d s", text)
