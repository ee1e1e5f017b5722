"""`opweld suite`: what the command line makes of its words, and how a run is shown."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.unit.suite.test_store import filled, result
from typer.testing import CliRunner

from opweld.interface.commands import suite
from opweld.interface.commands.suite_progress import SuiteProgress, lasting, summary
from opweld.suite.asking import digest_of, options_in, search_in, settings_in
from opweld.suite.driver import Progress
from opweld.suite.engines.named import Where
from opweld.suite.values import Work

RUNNER = CliRunner()


class Asked:
    """What `run_suite` was called with; `answer` is how it went."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.answer = Progress(1, verdicts=Counter(passed=1))

    def __call__(self, spec: str, work: Work, store: Path, **more: Any) -> Progress:
        self.given = {"spec": spec, "work": work, "store": store, **more}
        return self.answer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()
    monkeypatch.setattr(suite, "run_suite", found)
    return found


def run(*words: str) -> Any:
    return RUNNER.invoke(suite.app, list(words))


@pytest.mark.parametrize("words", [["pairs/"], ["run", "pairs/"], ["--jobs", "1", "pairs/"]])
def test_a_suite_alone_is_a_run(asked: Asked, words: list[str]) -> None:
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert asked.given["spec"] == "pairs/" and asked.given["work"].do == "check"
    assert asked.given["store"] == Path("pairs.check.sqlite")
    assert "pairs.check.sqlite" in done.stdout


def test_choices_reach_the_work_and_the_engine(asked: Asked) -> None:
    words = "x.jsonl --no-measure --jobs 3 --engine ray --address auto --store s --target cpu"
    assert run(*words.split(), "--precision", "tf32", "--scope", "full").exit_code == 0
    work, where = asked.given["work"], asked.given["where"]
    settings = settings_in(work)
    assert where == Where("ray", "cpu", 3, address="auto")
    assert (settings.measure, settings.precision, settings.scope) == (False, "tf32", "full")
    assert not work.exclusive and not work.builds_ahead and asked.given["store"] == Path("s")


def test_optimize_and_tune_have_their_own(asked: Asked) -> None:
    words = "m.py --do optimize --mode both --dtype float16 -o out --slurm partition=gpu".split()
    assert run(*words, "--engine", "slurm").exit_code == 0
    options = options_in(asked.given["work"])
    assert (options.mode, options.dtype) == ("both", ("float16",))
    assert asked.given["output"] == Path("out")
    assert asked.given["where"].slurm == {"partition": "gpu"}
    assert run("m.py", "--do", "tune", "--limit", "30", "--kind", "pointwise").exit_code == 0
    search = search_in(asked.given["work"])
    assert (search.kinds, search.limit_s) == (("pointwise",), 30.0)


def test_the_exit_code_says_whether_all_passed(asked: Asked) -> None:
    asked.answer = Progress(2, verdicts=Counter(passed=1, failed=1))
    assert run("pairs").exit_code == 1
    asked.answer = Progress(2, kept=1, kept_failing=1, verdicts=Counter(passed=1))
    assert run("pairs").exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing-here"], "nothing-here: no such file or folder; name a folder"),
        (["x.py", "--do", "juggle"], "there is no operation 'juggle'; use check, optimize, tune"),
        (["x.py", "--mode", "both"], "there is no mode 'both' to judge in"),
        (["x.py", "--slurm", "gpu"], "--slurm cannot be 'gpu'; write KEY=VALUE"),
        (["x.py", "--precision", "tf64"], "there is no precision 'tf64'"),
        (["status", "none.sqlite"], "none.sqlite: no such file; name the store of a suite"),
        (["report", "none.sqlite"], "no such file"),
        (["compare", "none.sqlite", "other.sqlite"], "no such file"),
    ],
)
def test_bad_usage_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("class Model: pass\n")
    done = run(*words)
    assert done.exit_code == 2
    (line,) = done.stderr.strip().splitlines()[-1:]
    assert line.startswith("opweld: ") and said in line, done.stderr
    assert "Traceback" not in done.output


def test_accounts_of_a_store(tmp_path: Path) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    filled(old, result("a"))
    filled(new, result("a", verdict="failed"))
    assert "1 of 3 ended" in run("status", str(old)).stdout
    assert run("report", str(old)).stdout.strip() == str(tmp_path / "old.html")
    assert (tmp_path / "old.html").read_text("utf-8").startswith("<!doctype html>")
    assert run("export", str(old), str(tmp_path / "t.csv")).exit_code == 0
    assert run("compare", str(old), str(old)).exit_code == 0
    worse = run("compare", str(old), str(new))
    assert worse.exit_code == 1 and "became wrong: a: failed: a" in worse.stdout


def test_the_digest_of_the_work_follows_what_can_change_a_result(asked: Asked) -> None:
    digests = []
    for more in ([], ["--seed", "1"], ["--no-measure"], ["--do", "tune"], ["--batch", "2"]):
        assert run("pairs", *more).exit_code == 0
        digests.append(digest_of(asked.given["work"]))
    assert len(set(digests)) == len(digests)
    for more in (["--time-limit", "9"], ["--sandbox", "off"], ["--jobs", "1"], ["--builders", "0"]):
        assert run("pairs", *more).exit_code == 0
        assert digest_of(asked.given["work"]) == digests[0], more


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("pairs/", "pairs.check.sqlite"),
        ("a/b.jsonl", "b.check.sqlite"),
        ("zoo/*.py", "zoo.check.sqlite"),
        ("*.py", "suite.check.sqlite"),
    ],
)
def test_the_store_is_called_like_the_suite(spec: str, name: str) -> None:
    assert suite.default_store(spec, "check") == Path(name)


HALF = Progress(
    100, kept=10, repeated=2, running=4, seconds=120.0,
    verdicts=Counter(passed=30, failed=5, crashed=1),
    causes=Counter({("failed", "own inputs"): 5, ("crashed", "crashed"): 1}),
    faults=Counter({"worker lost": 2}),
)  # fmt: skip


def test_the_progress_has_rate_remaining_time_and_failures_by_kind() -> None:
    assert summary(HALF) == (
        "48 of 100 done (10 from before, 2 repeated), 18 a minute, 30 passed, 3 min left, "
        "5 failed (own inputs), 1 crashed, 2 attempts ended by: worker lost"
    )
    assert summary(Progress(None)) == "0 done"
    assert [lasting(s) for s in (5, 150, 7500)] == ["5 s", "2 min", "2 h 5 min"]


@pytest.mark.parametrize("terminal", [False, True])
def test_it_is_a_line_now_and_then_or_a_live_panel(terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    with SuiteProgress(console, line_s=0.0) as shown:
        shown._told -= 10
        shown.follow(HALF)
        shown.say("gpu0 is set aside: [red]lost[/red]")
    text = out.getvalue()
    assert "gpu0 is set aside: [red]lost[/red]" in text, "as it is, without markup"
    assert ("4 running" in text) == terminal
    assert text.count("48 of 100 done") >= 2
    assert text.rstrip().endswith("2 attempts ended by: worker lost")
