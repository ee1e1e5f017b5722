"""The child process: whatever a file does, one sentence comes back and nothing stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.judge.pairs import POINTWISE, write, write_pair

import opweld
from opweld.errors import ModelFileError, ModelTimeout, UserError
from opweld.judge import Event, Settings, check, started
from opweld.judge.build.locks import remove_stale_locks
from opweld.judge.process.processes import MARK, await_end, descendants, kill, marked

QUICK = Settings(device="cpu", measure=False, seed=1)
SOURCE = Path(opweld.__file__).parent.parent


def new_with(body: str) -> str:
    return f"class ModelNew(Base):\n    def forward(self, x):\n        {body}\n"


def line_of(path: Path, text: str) -> int:
    lines = path.read_text().splitlines()
    return 1 + next(i for i, line in enumerate(lines) if text in line)


def test_a_good_pair_comes_back_with_its_judgement(tmp_path: Path) -> None:
    events: list[Event] = []
    model, new = write_pair(
        tmp_path, POINTWISE, new_with("print('noise'); return super().forward(x)")
    )
    settings = Settings(device="cpu", baselines=("eager",), num_runs=3)
    judgement = check(model, new, settings, events.append)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert 0 <= judgement.seed < 2**53
    timing = judgement.timing
    assert timing and timing.eager_ms and timing.eager_ms.n == timing.opweld_ms.n
    assert timing.opweld_ms.n == 3 or timing.opweld_ms.n > 100, "more only where in doubt"
    assert timing.compile_ms is None
    assert timing.limit_ms == pytest.approx(2 * 9 * 33 * 4 / timing.copy_gbps / 1e6)
    assert judgement.environment and judgement.environment.device == "cpu"
    assert {event.stage for event in events} == {"load", "verify", "measure", "estimate"}
    (told,) = (event for event in events if event.stage == "estimate")
    assert re.fullmatch(r"a first estimate: ModelNew [\d.e-]+ ms, eager [\d.e-]+ ms", told.message)
    assert not (tmp_path / "__pycache__").exists(), "nothing is written beside the files"


def test_a_server_that_was_started_ahead_judges_and_ends(tmp_path: Path) -> None:
    model, new = write_pair(tmp_path, POINTWISE, "class ModelNew(Base):\n    pass\n")
    with started(QUICK) as server:
        assert server is not None
        (pid,) = [pid for pid in descendants(os.getpid()) if os.getpgid(pid) == pid]
        for _ in range(2):
            assert check(model, new, QUICK, server=server).verdict.passed
        assert server.num_deaths == 0 and os.path.exists(f"/proc/{pid}"), "the same for both"
    assert not os.path.exists(f"/proc/{pid}")
    with started(None) as server:
        assert server is None


def test_a_crash_is_a_verdict_that_names_signal_and_line(tmp_path: Path) -> None:
    model, new = write_pair(tmp_path, POINTWISE, new_with("import ctypes; ctypes.string_at(0)"))
    judgement = check(model, new, QUICK)
    assert judgement.exit_code == 1 and judgement.seed == 1
    line = line_of(new, "string_at")
    expected = f"ModelNew crashed with SIGSEGV at new.py:{line} (own inputs)"
    assert judgement.verdict.reason == expected


def test_a_hang_ends_at_the_time_limit_and_names_the_line(tmp_path: Path) -> None:
    hang = "import time\n        time.sleep(3600)"
    model, new = write_pair(tmp_path, POINTWISE, new_with(hang))
    settings = Settings(device="cpu", measure=False, time_limit_s=10, seed=1)
    judgement = check(model, new, settings)
    line = line_of(new, "time.sleep")
    expected = f"ModelNew did not return within 10 s at new.py:{line} (own inputs)"
    assert judgement.verdict.reason == expected
    assert judgement.exit_code == 1


@pytest.mark.slow
def test_a_model_file_that_never_returns_is_told_apart(tmp_path: Path) -> None:
    model = write(tmp_path / "model.py", "while True: pass\n")
    settings = Settings(device="cpu", time_limit_s=10, seed=1)
    with pytest.raises(ModelTimeout) as caught:
        check(model, model, settings)
    line = line_of(model, "while True")
    expected = f"the original did not return within 10 s at model.py:{line} (importing {model})"
    assert caught.value.sentence == expected and caught.value.exit_code == 2
    assert "--time-limit" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import ctypes; ctypes.string_at(0)", "crashed with SIGSEGV at model.py:"),
        ("import os; os._exit(3)", "ended the process with exit code 3"),
        ("import os; os._exit(0)", "ended the process with exit code 0"),
        ("import os; [os.write(1, b'x' * 65536) for _ in range(1024)]", "printed more than 16 MiB"),
    ],
)
@pytest.mark.parametrize("measure", [True, False])
def test_an_original_that_ends_or_floods_is_bad_input(
    tmp_path: Path, body: str, said: str, measure: bool
) -> None:
    model = write(
        tmp_path / "model.py", POINTWISE.replace("        return", f"        {body}; return")
    )
    new = write(tmp_path / "new.py", POINTWISE.replace("Model(", "ModelNew("))
    settings = Settings(device="cpu", seed=1, baselines=("eager",), measure=measure)
    with pytest.raises(ModelFileError) as caught:
        check(model, new, settings)
    assert f"{model}: the original {said}" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_flood_and_a_hard_exit_are_verdicts(tmp_path: Path) -> None:
    flood = "import os\n        while True: os.write(1, b'x' * 65536)"
    model, new = write_pair(tmp_path, POINTWISE, new_with(flood))
    reason = check(model, new, QUICK).verdict.reason
    assert reason == "ModelNew printed more than 16 MiB (own inputs)"
    leave = "import os, sys; sys.stderr.write('farewell'); sys.stderr.flush(); os._exit(0)"
    model, new = write_pair(tmp_path, POINTWISE, new_with(leave))
    reason = check(model, new, QUICK).verdict.reason
    assert reason == "ModelNew ended the process with exit code 0 (own inputs): farewell"


def test_processes_left_behind_fail_the_verdict_and_are_ended(tmp_path: Path) -> None:
    """Also one that left the process group and holds the pipes."""
    script = tmp_path / "lingers.py"
    script.write_text("import time; time.sleep(3600)")
    start = (
        "import subprocess, sys\n"
        f"        subprocess.Popen([sys.executable, {str(script)!r}], start_new_session=True)\n"
        "        return super().forward(x)"
    )
    model, new = write_pair(tmp_path, POINTWISE, new_with(start))
    judgement = check(model, new, QUICK)
    assert not judgement.verdict.passed
    assert "processes left behind: still running" in judgement.verdict.reason
    assert not running(str(script))


def running(text: str) -> bool:
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0] if line else "Z"
        except OSError:
            continue
        if text.encode() in line and state != "Z":
            return True
    return False


def test_an_interrupt_ends_the_child(tmp_path: Path) -> None:
    hang = "import time\n        time.sleep(3600)"
    model, new = write_pair(tmp_path, POINTWISE, new_with(hang))
    script = (
        "import sys\nfrom opweld.judge import Settings, check\n"
        "def tell(event): print(event.stage, flush=True)\n"
        "try:\n    check(sys.argv[1], sys.argv[2], Settings(device='cpu'), tell)\n"
        "except KeyboardInterrupt:\n    sys.exit(130)\n"
    )
    command = [sys.executable, "-c", script, str(model), str(new)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as parent:
        assert parent.stdout is not None
        while parent.stdout.readline().strip() != "verify":
            pass
        time.sleep(0.3)
        parent.send_signal(signal.SIGINT)
        assert parent.wait(timeout=20) == 130
    assert not running("opweld-judge-"), "the child is gone"
    assert not list(tmp_path.glob("opweld-judge-*")), "and so is its folder"


def test_marks_find_processes_in_other_sessions() -> None:
    environment = {**os.environ, MARK: "a mark of this test"}
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        deadline = time.monotonic() + 10
        while not (found := list(marked("a mark of this test"))) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
    assert found == [process.pid]


def test_descendants_are_found_without_a_mark() -> None:
    shell = ["/bin/sh", "-c", "env -i sleep 60 & wait"]
    with subprocess.Popen(shell, env={}, start_new_session=True) as process:
        deadline = time.monotonic() + 10
        while not (found := descendants(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.pid in descendants(os.getpid()) and set(found) < set(
            descendants(os.getpid())
        )
        os.killpg(process.pid, signal.SIGKILL)
    assert len(found) == 1


def test_a_process_that_never_began_is_not_killed() -> None:
    """Zero means a whole group to the system, that of whoever sends it."""
    script = "from opweld.judge.process.processes import kill; kill(0); print('alive')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=60,
    )
    assert done.stdout.strip() == "alive"


def test_processes_killed_are_awaited_until_they_are_gone() -> None:
    child = subprocess.Popen(["sleep", "900"])
    began = time.monotonic()
    await_end({child.pid}, 0.2)
    assert time.monotonic() - began >= 0.2, "one that lives is waited for as long as was said"
    kill(child.pid)
    await_end({child.pid}, 60)
    assert Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    child.wait()
    await_end({child.pid}, 60)


def test_locks_of_a_build_that_died_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    fresh, old, held = (tmp_path / name / "lock" for name in "abc")
    for lock in (fresh, old, held):
        lock.parent.mkdir()
        lock.touch()
    os.utime(old, (1e9, 1e9))
    with held.open():
        remove_stale_locks(time.time() - 60)
    assert not fresh.exists() and old.exists() and held.exists(), "a build that lives keeps its own"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no such file"),
        (b"def broken(:\n", ":1 `def broken(:`: is not Python: "),
        (b"\x00\x01\x02", "null bytes"),
        (b"\xff\xfe\xfa", "is not text in UTF-8"),
    ],
)
def test_what_is_no_python_is_refused_before_a_child_starts(
    content: bytes | None, sentence: str, tmp_path: Path
) -> None:
    good, bad = write(tmp_path / "model.py", POINTWISE), tmp_path / "bad.py"
    if content is not None:
        bad.write_bytes(content)
    for pair in ((bad, good), (good, bad)):
        with pytest.raises(ModelFileError) as caught:
            check(*pair, QUICK)
        assert sentence in str(caught.value) and str(bad) in str(caught.value)
        assert caught.value.exit_code == 2


def test_a_user_error_found_in_the_child_is_raised_here(tmp_path: Path) -> None:
    model = write(tmp_path / "model.py", "class Model(nn.Module):\n    pass\n")
    with pytest.raises(UserError) as caught:
        check(model, model, QUICK)
    assert "does not define get_inputs and get_init_inputs" in str(caught.value)
    assert str(model) in str(caught.value)
