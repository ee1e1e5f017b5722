"""`opweld report`: the account comes back as it was written, or one sentence says why not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.report import accounts
from typer.testing import CliRunner

from opweld.account import LONGEST_TEXT_BYTES, command_of, of_judgement
from opweld.delivery import json_text
from opweld.errors import UserError
from opweld.interface.cli import app
from opweld.judge.values import to_plain
from opweld.report import page
from opweld.report.read import read_account

RUN = CliRunner()


def written(folder: Path, **changed: Any) -> Path:
    path = folder / "m.json"
    path.write_text(json_text({**to_plain(accounts.full()), **changed}), "utf-8")
    return path


def test_an_account_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert read_account(written(tmp_path)) == accounts.full()
    later = written(tmp_path, of_a_later_release={"x": 1})
    assert read_account(later) == accounts.full()


def test_the_page_is_beside_the_account_or_where_it_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path)
    done = RUN.invoke(app, ["report", str(path)])
    beside = tmp_path / "m.html"
    assert done.exit_code == 0 and str(beside) in done.output and "kB" in done.output
    assert beside.read_text("utf-8") == page(accounts.full())
    done = RUN.invoke(app, ["report", str(path), "--html", str(tmp_path / "new" / "p.html")])
    assert done.exit_code == 0 and (tmp_path / "new" / "p.html").exists()
    done = RUN.invoke(app, ["report", str(path), "--html", "-"])
    assert done.output == page(accounts.full()) + "\n"


BAD = {
    "model_new.py": ("import torch\n", "is no account of a run; write one by `opweld optimize"),
    "list.json": ("[1]", "is no account of a run"),
    "other.json": ('{"a": 1}', "is no account of a run"),
    "deep.json": ("[" * 100_000, "is no account of a run"),
    "next.json": ('{"schema_version": 9}', "is an account of version 9, not 1"),
    "part.json": ('{"schema_version": 1}', "does not hold what its version has"),
    "odd.json": (None, "does not hold what its version has"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_account_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    text, sentence = BAD[name]
    path = tmp_path / name
    if text is None:
        text = written(tmp_path, verdict=[1, 2]).read_text()
    path.write_text(text)
    done = RUN.invoke(app, ["report", str(path)])
    assert done.exit_code == 2
    assert done.output.startswith(f"opweld: {path}: ") and done.output.count("\n") == 1
    assert sentence in done.output
    assert not path.with_suffix(".html").exists()


def places(data: Any, *way: Any) -> Iterator[tuple[Any, ...]]:
    """The ways to all fields of an account; of lists to the first element alone."""
    inner = data.items() if isinstance(data, dict) else list(enumerate(data))[:1]
    for key, value in inner:
        yield (*way, key)
        if isinstance(value, dict | list):
            yield from places(value, *way, key)


@pytest.mark.parametrize(
    "odd", ["text", 0, 10**300, -1.5, None, [1], {"a": 1}], ids=lambda v: repr(v)[:9]
)
def test_any_field_may_hold_anything(odd: Any, tmp_path: Path) -> None:
    """It has a page, or is refused in a sentence."""
    text, path = json_text(to_plain(accounts.full())), tmp_path / "odd.json"
    for *way, last in places(json.loads(text)):
        data = inner = json.loads(text)
        for step in way:
            inner = inner[step]
        inner[last] = odd
        path.write_text(json.dumps(data))
        with contextlib.suppress(UserError):
            assert page(read_account(path)).endswith("</html>")


def test_the_page_does_not_replace_its_account(tmp_path: Path) -> None:
    path = written(tmp_path)
    before, named = path.read_text(), tmp_path / "named.html"
    named.symlink_to(path)
    for words in ((path, "--html", path), (path, "--html", named), (named,)):
        done = RUN.invoke(app, ["report", *map(str, words)])
        assert done.exit_code == 2 and "is the account itself; name another" in done.output
    assert path.read_text() == before and named.is_symlink()


@pytest.mark.parametrize("command", [("optimize",), ("check", "m_new.py")], ids=lambda c: c[0])
def test_the_account_and_the_page_are_two_files(command: tuple[str, ...], tmp_path: Path) -> None:
    model, out = tmp_path / "m.py", tmp_path / "a"
    model.write_text(accounts.SOURCE)
    (tmp_path / "m_new.py").write_text(accounts.SOURCE)
    given = [command[0], str(model), *(str(tmp_path / name) for name in command[1:])]
    for name in (str(out), "-"):
        done = RUN.invoke(app, [*given, "--json", name, "--html", name])
        assert done.exit_code == 2
        assert done.output == f"opweld: {name}: is named by --json and by --html; name two\n"
    assert not out.exists()


@pytest.mark.parametrize("flag", ["--json", "--html"])
def test_a_model_is_not_written_over(tmp_path: Path, flag: str) -> None:
    model = tmp_path / "m.py"
    model.write_text(accounts.SOURCE, "utf-8")
    done = RUN.invoke(app, ["optimize", str(model), flag, str(model)])
    assert done.exit_code == 2 and "is a file of Python" in done.output, done.output
    assert model.read_text("utf-8") == accounts.SOURCE


def test_where_the_page_goes_is_looked_at_before_the_work(tmp_path: Path) -> None:
    """The model file, which is none, is not got to."""
    model = tmp_path / "m.py"
    model.write_text(accounts.SOURCE)
    for option in ("--json", "--html"):
        done = RUN.invoke(app, ["optimize", str(model), option, str(tmp_path)])
        assert done.exit_code == 2
        assert done.output == f"opweld: {tmp_path}: is a folder; name a file\n"


def test_sources_of_an_account_are_files_that_are_not_too_long(tmp_path: Path) -> None:
    short, long = tmp_path / "short.py", tmp_path / "long.py"
    short.write_text("#" * LONGEST_TEXT_BYTES)
    long.write_text("#" * (LONGEST_TEXT_BYTES + 1))
    for other in (long, tmp_path, tmp_path / "none.py"):
        made = of_judgement(short, other, accounts.JUDGEMENT)
        assert list(made.sources) == ["short.py"]


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    done = RUN.invoke(app, ["report", str(tmp_path / "none.json")])
    assert done.exit_code == 2 and "cannot be read: No such file" in done.output
    path = written(tmp_path)
    done = RUN.invoke(app, ["report", str(path), "--html", str(tmp_path)])
    assert done.exit_code == 2 and "is a folder; name a file" in done.output
    done = RUN.invoke(app, ["report", str(path), "--html", str(path / "p.html")])
    assert done.exit_code == 2 and "is inside a file" in done.output


def test_the_command_is_what_does_it_again() -> None:
    words = ["optimize", "my model.py", "--batch", "8"]
    assert command_of(words, {}, 7) == "opweld optimize 'my model.py' --batch 8 --seed 7"
    assert command_of([*words, "--seed", "3"], {}, 3).endswith("--batch 8 --seed 3")
    assert command_of([*words, "--seed=3"], {}, 3).endswith("--seed=3")
    assert command_of(["check"], {"OPWELD_SANDBOX": "a b", "HOME": "/x"}, None) == (
        "OPWELD_SANDBOX='a b' opweld check"
    )


def test_an_account_of_before_has_less_on_its_page(tmp_path: Path) -> None:
    """Fields that were added since are read as empty."""
    data = to_plain(accounts.full())
    for name in ("date", "command", "sources", "kernel_texts", "line_texts"):
        del data[name]
    for row in data["plan"]:
        for name in ("loop", "number", "reads", "inputs", "is_result"):
            del row[name]
    for check in data["verdict"]["checks"]:
        del check["outputs"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(data))
    text = page(read_account(path))
    assert "Its text is not in the account" in text
    assert "The account names no command" not in text  # the files are known


def test_a_page_without_a_command_says_so() -> None:
    made = replace(accounts.full(), command=None, model="Sequential", model_new="ModelNew")
    assert "The account names no command: it was made from Python." in page(made)
