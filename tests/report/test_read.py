"""`opweld report`: the account comes back as it was written, or one sentence says why not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.report import accounts
from typer.testing import CliRunner

from opweld.account import command_of
from opweld.delivery import json_text
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
