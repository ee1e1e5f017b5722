"""The command line as a user meets it: exit codes, one sentence, nothing left over."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from opweld.interface import cli
from opweld.judge.values import ALL_BASELINES, PRECISIONS, SCOPES, Settings
from opweld.options import DTYPES, MODES, TARGETS
from opweld.pipeline import settings_of
from opweld.tune.values import KINDS

SOURCE = str(Path(__file__).parents[2] / "src")
MODEL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        {forward}
def get_inputs():
    {inputs}
def get_init_inputs():
    return []
"""
WHOLE = {"forward": "return torch.exp(x) * 2.0", "inputs": "return [torch.ones(4, 8)]"}
NEW = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {forward}
"""


def environ(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCE, **more}


def opweld(*args: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opweld", *map(str, args)]
    return subprocess.run(command, env=environ(**more), capture_output=True, text=True, timeout=600)


def refusal(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The one sentence of a refusal; progress stands in front of it."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == "" or code == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("opweld: ")
    return last.removeprefix("opweld: ")


def verdict(done: subprocess.CompletedProcess[str]) -> str:
    """What the brief says of the pair."""
    lines = [line for line in done.stdout.splitlines() if line.startswith("Verdict ")]
    assert len(lines) == 1, done.stdout
    return lines[0].removeprefix("Verdict").strip()


def write(path: Path, text: str = "", **parts: str) -> Path:
    path.write_text(text or MODEL.format(**{**WHOLE, **parts}))
    return path


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != "__pycache__")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "m.py")


@pytest.mark.parametrize(
    "args",
    [
        ["optimise", "m.py"],
        ["optimize"],
        ["optimize", "m.py", "--no-such-option"],
        ["optimize", "m.py", "--batch", "many"],
        ["check", "m.py", "new.py", "one_more.py"],
        ["plan", "m.py", "--stage", "soup"],
    ],
)
def test_usage_errors_exit_2(args: list[str]) -> None:
    done = opweld(*args)
    assert done.returncode == 2
    assert "Error: " in done.stderr and "Traceback" not in done.stderr


def test_version_and_help() -> None:
    assert opweld("--version").stdout == "opweld 0.1.0\n"
    text = opweld("--help").stdout
    assert all(command in text for command in ("optimize", "check", "plan", "doctor"))


@pytest.mark.parametrize("command", ["optimize", "plan", "check"])
def test_no_such_file(tmp_path: Path, command: str) -> None:
    path = tmp_path / "no.py"
    args = [command, path, path] if command == "check" else [command, path]
    assert refusal(opweld(*args)) == f"{path}: there is no such file"


@pytest.mark.parametrize("command", ["optimize", "plan"])
def test_syntax_error(tmp_path: Path, command: str) -> None:
    path = write(tmp_path / "m.py", "x = (1\n")
    assert refusal(opweld(command, path)).startswith(f"{path}:1 `x = (1`: is not Python: ")
    assert names(tmp_path) == ["m.py"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--precision", "tf32"], "precision 'tf32' is not there yet; use --precision match"),
        (["--target", "tpu"], "there is no target 'tpu'; use one of auto, cpu, cuda"),
        (["--mode", "train"], "there is no mode 'train'; use own, eval, training or both"),
        (["--autocast", "half"], "--autocast cannot be 'half'; use bfloat16 or float16"),
        (["--dtype", "float16,int8"], "--dtype cannot be 'int8'; use float16, bfloat16"),
        (["--batch", "0"], "--batch must be at least 1, not 0"),
        (["-o", "/proc/new.py"], "/proc/new.py: cannot be written"),
        (["-o", "/proc/no/such/folder/new.py"], "/proc/no/such/folder/new.py: cannot be written"),
        (["-o", "/proc/version/new.py"], "/proc/version/new.py: is inside a file; name another"),
        (["--json", "/proc/a.json"], "/proc/a.json: cannot be written"),
    ],
)
def test_choices_that_are_refused_before_any_work(
    model: Path, options: list[str], says: str
) -> None:
    assert refusal(opweld("optimize", model, *options)).startswith(says)
    assert names(model.parent) == ["m.py"]


def test_the_output_is_the_model(model: Path) -> None:
    before = model.read_text()
    said = refusal(opweld("optimize", model, "-o", model))
    assert said == f"{model}: is the model file itself; name another file with -o"
    assert model.read_text() == before


def test_a_bad_environment_variable(model: Path) -> None:
    said = refusal(opweld("optimize", model, OPWELD_DEBUG="9"))
    assert said == "OPWELD_DEBUG must be 0 to 5, not 9"


def test_check_of_another_signature(model: Path) -> None:
    new = write(model.with_name("new.py"), NEW.replace("x)", "x, y)").format(forward="return x"))
    done = opweld("check", model, new)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "missing 1 required positional" in verdict(done)


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        ("return (torch.exp(x) * 2.0)[:2]", "shape"),
        ("return (torch.exp(x) * 2.0).double()", "float64"),
        ("return torch.exp(x) * 2.001", "grade F"),
    ],
)
def test_check_of_what_is_not_equivalent(model: Path, forward: str, says: str) -> None:
    new = write(model.with_name("new.py"), NEW.format(forward=forward))
    account = model.with_name("a.json")
    done = opweld("check", model, new, "--json", account)
    assert done.returncode == 1
    assert verdict(done).startswith("NOT EQUIVALENT") and says in verdict(done)
    assert '"passed": false' in account.read_text()


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        ("import ctypes; ctypes.string_at(8)", "crashed with SIGSEGV"),
        ("import os; os._exit(0)", "ended the process with exit code 0"),
        ("import time; time.sleep(900)", "did not return within"),
        ("return self.no_such_name", "no_such_name"),
    ],
)
def test_check_of_what_breaks_while_it_is_judged(model: Path, forward: str, says: str) -> None:
    new = write(model.with_name("new.py"), NEW.format(forward=forward))
    done = opweld("check", model, new, "--time-limit", "12")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert verdict(done).startswith("NOT EQUIVALENT") and says in verdict(done)


@pytest.mark.parametrize(
    ("precision", "code"), [("match", 1), pytest.param("bf16", 0, marks=pytest.mark.slow)]
)
def test_check_accepts_the_precision_that_it_is_given(
    model: Path, precision: str, code: int
) -> None:
    rounded = "return (torch.exp(x) * 2.0).bfloat16().float()"
    new = write(model.with_name("new.py"), NEW.format(forward=rounded))
    done = opweld("check", model, new, "--precision", precision, "--seed", "1")
    assert done.returncode == code, done.stdout
    assert "bfloat16-like" in done.stdout


def test_json_on_standard_output_stands_alone(model: Path) -> None:
    new = write(model.with_name("new.py"), NEW.format(forward="return torch.exp(x) * 2.001"))
    done = opweld("check", model, new, "--json", "-")
    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"]["passed"] is False
    assert "NOT EQUIVALENT" in done.stderr


def test_verbose_shows_every_check(model: Path) -> None:
    new = write(model.with_name("new.py"), NEW.format(forward="return torch.exp(x) * 2.001"))
    brief, whole = opweld("check", model, new), opweld("check", model, new, "-v")
    assert "eager rms" in whole.stdout and "eager rms" not in brief.stdout
    assert verdict(whole).startswith("NOT EQUIVALENT")


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [
        ("optimize", "--mode", MODES),
        ("optimize", "--dtype", DTYPES),
        ("optimize", "--target", TARGETS),
        ("optimize", "--baselines", ALL_BASELINES),
        ("check", "--scope", SCOPES),
        ("check", "--precision", PRECISIONS),
        ("plan", "--stage", cli.STAGES),
        ("tune", "--kind", KINDS),
    ],
)
def test_help_names_every_value_and_a_shell_completes_them(
    command: str, option: str, values: tuple[str, ...]
) -> None:
    text = CliRunner().invoke(cli.app, [command, "--help"], terminal_width=400).output
    line = next(line for line in text.splitlines() if line.strip().startswith(option))
    assert all(value in line for value in values), line
    asked = f"opweld {command} {option} "
    environ = {"_OPWELD_COMPLETE": "complete_bash", "COMP_WORDS": asked, "COMP_CWORD": "3"}
    found = CliRunner().invoke(cli.app, [], env=environ, prog_name="opweld").output.split()
    assert found == list(values)


@pytest.mark.parametrize("command", ["optimize", "check", "plan", "tune", "doctor"])
def test_help_ends_with_examples_that_the_command_line_takes(command: str) -> None:
    text = CliRunner().invoke(cli.app, [command, "--help"]).output
    examples = re.findall(rf"^    opweld ({command} .*)$", text, re.M)
    assert examples
    for example in examples:
        name, *args = shlex.split(example)
        parser = typer.main.get_command(cli.app).commands[name]  # type: ignore[attr-defined]
        parser.make_context(name, args).close()


def test_check_refuses_a_precision_that_there_is_not(model: Path) -> None:
    said = refusal(opweld("check", model, model, "--precision", "int8"))
    assert said == "there is no precision 'int8'; use one of match, tf32, fp16, bf16"


def test_one_mode_is_judged(model: Path) -> None:
    said = refusal(opweld("check", model, model, "--mode", "both"))
    assert said == "there is no mode 'both' to judge in; use one of own, eval, training"


@pytest.mark.parametrize("command", ["check", "optimize"])
@pytest.mark.parametrize(
    ("flags", "thorough", "stop_at_first"),
    [((), False, True), (("--thorough",), True, True), (("--all",), False, False)],
)
def test_how_much_is_judged(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    flags: tuple[str, ...],
    thorough: bool,
    stop_at_first: bool,
) -> None:
    asked: list[Settings] = []
    monkeypatch.setattr(cli, "_check", lambda pair, settings, *_: asked.append(settings) or 0)
    monkeypatch.setattr(
        cli, "_optimize", lambda model, out, options, *_: asked.append(settings_of(options)) or 0
    )
    done = CliRunner().invoke(cli.app, [command, str(model), *flags])
    assert done.exit_code == 0, done.output
    assert [(each.thorough, each.stop_at_first) for each in asked] == [(thorough, stop_at_first)]


@pytest.mark.parametrize("command", ["check", "optimize"])
@pytest.mark.parametrize("flags", [(), ("--training",)])
def test_steps_of_training_are_timed_where_they_are_asked_for(
    model: Path, monkeypatch: pytest.MonkeyPatch, command: str, flags: tuple[str, ...]
) -> None:
    asked: list[Settings] = []
    monkeypatch.setattr(cli, "_check", lambda pair, settings, *_: asked.append(settings) or 0)
    monkeypatch.setattr(
        cli, "_optimize", lambda model, out, options, *_: asked.append(settings_of(options)) or 0
    )
    assert CliRunner().invoke(cli.app, [command, str(model), *flags]).exit_code == 0
    assert [each.step for each in asked] == [bool(flags)]


def test_check_of_a_file_without_model_new(model: Path) -> None:
    said = refusal(opweld("check", model, model))
    assert "ModelNew" in said and str(model) in said


def test_debug_shows_the_traceback(model: Path) -> None:
    done = opweld("optimize", model, "-o", "/proc/new.py", "--debug")
    assert done.returncode == 2
    assert "Traceback (most recent call last)" in done.stderr


def descendants(pid: int) -> set[int]:
    """Every living process below `pid`, whatever its group or session."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX":
                parents[int(entry.name)] = int(fields[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["optimize", "check"])
def test_an_interrupt_leaves_no_file_and_no_process(
    tmp_path: Path, command: str, number: signal.Signals
) -> None:
    note = tmp_path / "note"
    body = (
        f"import subprocess, time; p = subprocess.Popen(['sleep', '900'], process_group=0);"
        f" open({str(note)!r}, 'w').write('here'); time.sleep(900)"
    )
    model = write(tmp_path / "m.py", inputs=body)
    new = write(tmp_path / "n.py", NEW.format(forward="return x"))
    args = [command, str(model), *([str(new)] if command == "check" else [])]
    process = subprocess.Popen(
        [sys.executable, "-m", "opweld", *args],
        env=environ(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 300
    while not note.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    below = descendants(process.pid)
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert said.strip().splitlines()[-1] == "opweld: interrupted; nothing was written"
    assert len(below) >= 2
    assert not [pid for pid in below if alive(pid)]
    assert names(tmp_path) == ["m.py", "n.py", "note"]


@pytest.mark.parametrize("stage", ["plan", "source"])
def test_the_plan_of_a_model_that_no_graph_stands_for_says_why(tmp_path: Path, stage: str) -> None:
    forward = "self.n = 1; return torch.relu(x)"
    path = write(tmp_path / "m.py", forward=forward)
    done = opweld("plan", path, "--stage", stage)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("  reason: the forward assigns to self.n\n")


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(MODEL.format(**WHOLE))
    plan = [sys.executable, "-m", "opweld", "plan", str(model), "--stage", "source"]
    process = subprocess.Popen(
        plan,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # before a line of it was read
    assert "internal error" not in process.stderr.read().decode()
    assert process.wait() == 0
