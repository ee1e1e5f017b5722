"""The parent's side: how a search can end, what is written, what is shown.

The search is replaced by a few lines that run in a real child process, but for one whole run.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from opweld.errors import BadTable, OpweldError, SearchFailed, UserError
from opweld.options import Options
from opweld.schedules import HEADING, parse
from opweld.tune.command import account, apply, kinds_of, tune
from opweld.tune.show import show
from opweld.tune.values import KINDS, Found, Outcome, Search, Trial

SOURCE = str(Path(__file__).parents[3] / "src")
ROW = (
    "pointwise | cpu | f32 | elems 2^10 reads 2 writes 1 limit memory | "
    "vector width 1, 1 in flight, 1 threads | 3 | vector width 16, 1 in flight, 1 threads | 4 | "
    "A CPU | 2026-11-20 | 2.13.0 | opweld tune x.py"
)
MODEL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return {forward}
def get_inputs():
    return [torch.ones(16, 20, 3), torch.ones(20, 1)]
def get_init_inputs():
    return []
"""
CHILD = """
import json, os, sys, time
from pathlib import Path
from opweld.process import worker
from opweld.errors import UserError
request, answer = map(Path, sys.argv[1:])
asked = json.loads(request.read_text())
def work():
{body}
worker.answer_with(answer, *worker.asked_of(asked)[:1], work)
"""
TRIALS = (Trial("wide", 90.0, 89.0, 91.0, 50), Trial("now", 100.0, 99.0, 101.0, 50))
OUTCOME = Outcome(
    "pointwise", "f32", "elems 2^10", ("k1_exp", "k2_exp"), "now", TRIALS, TRIALS, True,
    "10.0 % faster, twice beyond the spread", 80.0,
)  # fmt: skip
FOUND = Found(
    "cpu", "A CPU", "2.13.0", "2026-11-21", "table.txt", (OUTCOME,), ("[wide]: no",), (ROW,),
    HEADING, f"{HEADING}{ROW}\n", f"--- now\n+++ proposed\n+{ROW}",
)  # fmt: skip


def command(body: str) -> list[str]:
    return [sys.executable, "-P", "-c", CHILD.format(body=textwrap.indent(body, "    "))]


def write(path: Path, forward: str = "torch.exp(x * y)") -> Path:
    path.write_text(MODEL.format(forward=forward))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "m.py")


def test_the_result_and_the_events_arrive(model: Path) -> None:
    body = f"""
worker.send_event("measure\\tk1_exp")
assert asked["search"] == {{"kinds": ["pointwise"], "limit_s": 9.0, "command": "opweld tune m.py"}}
assert os.environ["TORCH_EXTENSIONS_DIR"] == str(request.parent)
return {{"found": json.loads({json.dumps(FOUND.to_data())!r})}}
"""
    events: list[tuple[str, str]] = []
    asked = Search(("pointwise",), 9.0, "opweld tune m.py")
    found = tune(model, Options(), asked, lambda *event: events.append(event), command(body))
    assert found == FOUND
    assert events == [("measure", "k1_exp")]


@pytest.mark.parametrize(
    ("body", "cls", "said"),
    [
        ("raise UserError('no tools')", UserError, "no tools"),
        ("os.abort()", SearchFailed, "the process that measures was ended by SIGABRT"),
        ("print('illegal address'); os._exit(3)", SearchFailed, "status 3 after printing 'illegal"),
    ],
)
def test_how_a_search_can_fail(model: Path, body: str, cls: type[OpweldError], said: str) -> None:
    with pytest.raises(cls) as caught:
        tune(model, Options(), Search(), command=command(body))
    assert type(caught.value) is cls and said in str(caught.value)


def test_a_search_that_hangs(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opweld.tune.command.GRACE_S", 1.0)
    with pytest.raises(UserError, match=r"was not measured within 0.5 s; allow more with --limit"):
        tune(model, Options(), Search(limit_s=0.5), command=command("time.sleep(600)"))


def test_kinds() -> None:
    assert kinds_of(None) == KINDS and kinds_of("contraction") == ("contraction",)
    with pytest.raises(UserError, match="there is no kind 'view'"):
        kinds_of("view")


def test_the_table_is_written_if_it_is_the_one_that_was_read(tmp_path: Path) -> None:
    table = tmp_path / "table.txt"
    table.write_text(HEADING)
    found = replace(FOUND, table=str(table))
    apply(found)
    assert table.read_text() == FOUND.after
    with pytest.raises(BadTable, match="was changed while schedules were measured"):
        apply(found)
    assert table.read_text() == FOUND.after
    assert [path.name for path in tmp_path.iterdir()] == ["table.txt"]


def shown(found: Found, written: bool = False, terminal: bool = False) -> str:
    stream = io.StringIO()
    show(found, written, Console(file=stream, force_terminal=terminal, width=200))
    return stream.getvalue()


def test_plain_lines_off_a_terminal() -> None:
    assert shown(FOUND).splitlines() == [
        "left out: [wide]: no",
        "k1_exp k2_exp: pointwise f32 elems 2^10; current now 100 (99 to 101), fastest wide 90 "
        "(89 to 91), second now 100 (99 to 101), copy 80; 10.0 % faster, twice beyond the spread",
        *FOUND.diff.splitlines(),
        "One row proposed for table.txt; --write applies the diff",
    ]
    assert shown(FOUND, written=True).endswith("One row written to table.txt\n")


def test_a_table_on_a_terminal() -> None:
    text = shown(FOUND, terminal=True)
    for word in ("Schedules for cpu on A CPU", "k1_exp", "wide", "100 (99 to 101)", "copy", ROW):
        assert word in text.replace("\n", "") or word in text


def test_what_is_said_where_nothing_is_proposed() -> None:
    alone = replace(OUTCOME, trials=(), again=(), proposed=False, said="not run", copy_us=None)
    found = replace(FOUND, outcomes=(alone,), notes=(), rows=(), diff="")
    assert shown(found).splitlines() == [
        "k1_exp k2_exp: pointwise f32 elems 2^10; current now; not run",
        "No row is proposed; table.txt stays as it is",
    ]
    assert shown(replace(found, outcomes=())).startswith("There is no group to tune\n")


def test_the_account_has_all_but_the_texts_of_the_table() -> None:
    data = json.loads(json.dumps(account(Path("m.py"), Search(), FOUND, written=True)))
    assert data["written"] is True and data["rows"] == [ROW] and data["model"] == "m.py"
    assert data["outcomes"][0]["trials"][0] == {
        "schedule": "wide", "us": 90.0, "p10_us": 89.0, "p90_us": 91.0, "runs": 50,
    }  # fmt: skip
    assert "before" not in data and "after" not in data


# --- the command, whole ---


def opweld(*args: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opweld", *map(str, args)],
        env={**os.environ, "PYTHONPATH": SOURCE, **environ},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.slow
def test_a_model_is_tuned_on_the_cpu(model: Path, tmp_path: Path) -> None:
    """The structure of what is found; who wins is the machine's affair."""
    table, out = tmp_path / "table.txt", tmp_path / "account.json"
    table.write_text(f"{HEADING}{ROW}\n")
    done = opweld("tune", model, "--target", "cpu", "--write", "--json", out,
                  OPWELD_SCHEDULES=str(table))  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text())
    assert (data["target"], data["command"]) == ("cpu", f"opweld tune {model} --target cpu")
    (outcome,) = data["outcomes"]
    assert outcome["groups"] == ["k1_mul_exp"] and outcome["current"].startswith("vector width 1,")
    assert {trial["schedule"] for trial in outcome["trials"]} == {
        "vector width 1, 1 in flight, 1 threads",
        "vector width 16, 1 in flight, 1 threads",
    }
    for trial in outcome["trials"]:
        assert 0 < trial["p10_us"] <= trial["us"] <= trial["p90_us"] and trial["runs"] >= 1
    assert outcome["copy_us"] > 0
    (kept,) = parse(table.read_text(), "table.txt")
    assert data["written"] is outcome["proposed"] is bool(data["rows"])
    assert (kept.schedule.lanes == 16) is outcome["proposed"]
    assert "k1_mul_exp: pointwise f32 elems 2^10 reads 2" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "account.json", "m.py", "table.txt",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_group_without_a_choice_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "account.json"
    model = write(tmp_path / "m.py", "torch.exp(x)")
    done = opweld("tune", model, "--target", "cpu", "--json", out)
    assert done.returncode == 0, done.stderr
    (outcome,) = json.loads(out.read_text())["outcomes"]
    assert outcome["shape"] == "elems 2^10 reads 1 writes 1 limit memory"
    assert [trial["us"] > 0 for trial in outcome["trials"]] == [True]
    assert outcome["said"] == "nothing else to try" and not outcome["proposed"]


@pytest.mark.slow
def test_a_model_without_a_group(tmp_path: Path) -> None:
    done = opweld("tune", write(tmp_path / "m.py", "torch.sort(x)[0]"), "--target", "cpu")
    assert done.returncode == 0 and done.stdout.startswith("There is no group to tune\n")


@pytest.mark.parametrize("name", ["plan", "tune"])
def test_a_bad_table_is_one_sentence(model: Path, tmp_path: Path, name: str) -> None:
    table = tmp_path / "own.txt"
    table.write_text(f"{HEADING}pointwise | cpu\n")
    done = opweld(name, model, "--target", "cpu", OPWELD_SCHEDULES=str(table))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    line = len(HEADING.splitlines()) + 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"opweld: {table}:{line}: is no row of measured schedules: it has 2")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--kind", "view"], "there is no kind 'view'"),
        (["--limit", "0"], "the time limit must be above 0"),
        (["--target", "sm_80"], "no device on which schedules for sm_80"),
        (["--json", "."], "is a folder"),
    ],
)
def test_bad_usage_is_one_sentence(model: Path, args: list[str], said: str) -> None:
    done = opweld("tune", model, *args)
    assert done.returncode == 2 and said in done.stderr.strip().splitlines()[-1]


def test_an_interrupted_search_leaves_nothing(model: Path, tmp_path: Path) -> None:
    """Neither in the folder of temporary files, nor in the table, nor a process."""
    temporary, table, note = tmp_path / "temporary", tmp_path / "table.txt", tmp_path / "note"
    temporary.mkdir()
    table.write_text(HEADING)
    compiler = tmp_path / "c++"
    hangs = f"echo $$ >> {note}; exec sleep 600"  # but says its version
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *" -c "*) {hangs};; *) exec g++ "$@";; esac\n')
    compiler.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "opweld", "tune", str(model), "--target", "cpu", "--write"],
        env={
            **os.environ,
            "PYTHONPATH": SOURCE,
            "TMPDIR": str(temporary),
            "OPWELD_SCHEDULES": str(table),
            "OPWELD_SANDBOX": "off",  # the compiler writes its note
            "CXX": str(compiler),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 300
    while not note.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    assert list(temporary.glob("opweld-*/candidate0.py"))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert said.strip().splitlines()[-1] == "opweld: interrupted; nothing was written"
    assert table.read_text() == HEADING
    assert not list(temporary.glob("opweld-*"))
    assert not [pid for pid in note.read_text().split() if alive(pid)]


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
