"""The child process: its output, its events, its time limit, and that nothing of it stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opweld.process.child import TAIL_BYTES, run_child

SPAWN = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60'], process_group=0);"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def test_status_and_output() -> None:
    finished = run_child(python("print('hello'); raise SystemExit(7)"), time_limit_s=30)
    assert (finished.status, finished.tail, finished.timed_out) == (7, "hello\n", False)


def test_only_the_end_of_a_flood_is_kept() -> None:
    code = "import sys; sys.stdout.write('x' * 3_000_000 + 'end')"
    finished = run_child(python(code), time_limit_s=30)
    assert len(finished.tail) == TAIL_BYTES
    assert finished.tail.endswith("xend")


def test_events_arrive_in_order() -> None:
    code = "import os; f = os.fdopen(int(os.environ['OPWELD_EVENTS']), 'w'); f.write('a\\nb\\n')"
    events: list[str] = []
    run_child(python(code), time_limit_s=30, on_event=events.append)
    assert events == ["a", "b"]


def test_time_limit_ends_grandchildren_in_other_groups() -> None:
    pids: list[str] = []
    code = SPAWN + (
        "import os; os.write(int(os.environ['OPWELD_EVENTS']), b'%d\\n' % p.pid); time.sleep(60)"
    )
    start = time.monotonic()
    finished = run_child(python(code), time_limit_s=1.0, on_event=pids.append)
    assert finished.timed_out
    assert time.monotonic() - start < 20
    assert len(pids) == 1 and not alive(int(pids[0]))


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    finished = run_child(python(code), time_limit_s=0.5)
    assert finished.timed_out
    assert finished.status in (-signal.SIGKILL, -signal.SIGTERM)


def test_grandchildren_do_not_outlive_a_child_that_returns() -> None:
    code = SPAWN + "print(p.pid)"
    finished = run_child(python(code), time_limit_s=30)
    assert finished.status == 0
    assert not alive(int(finished.tail))


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_death_by_a_signal_is_told(number: signal.Signals) -> None:
    finished = run_child(python(f"import os; os.kill(os.getpid(), {number})"), time_limit_s=30)
    assert finished.status == -number
    assert finished.ending() == f"was ended by {number.name}"


def test_an_interrupt_ends_the_child(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    inner = SPAWN + f"open({str(note)!r}, 'w').write(str(p.pid)); time.sleep(60)"
    code = (
        "import sys; from opweld.process.child import run_child\n"
        f"run_child([sys.executable, '-c', {inner!r}], time_limit_s=60)"
    )
    source = str(Path(__file__).parents[2] / "src")
    outer = subprocess.Popen(
        python(code), env={**os.environ, "PYTHONPATH": source}, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    outer.send_signal(signal.SIGINT)
    _, errors = outer.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    assert not alive(int(note.read_text()))
