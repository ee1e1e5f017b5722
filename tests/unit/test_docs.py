"""The documentation agrees with the code: generated parts, links, commands, the account."""

from __future__ import annotations

import re
import runpy
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from opweld.judge.values import Check, KernelTiming, Timing, Verdict

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))
README = (ROOT / "README.md").read_text("utf-8")


def command(name: str) -> str:
    found = re.search(rf"<!-- command:{name} -->\n```sh\n(.*?)\n```", README, re.DOTALL)
    assert found
    return found[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_are_fresh(page: Path) -> None:
    text = page.read_text("utf-8")
    assert GENERATE["generated"](text) == text, "run python3 docs/generate.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    for path in re.findall(
        r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]+)`", page.read_text()
    ):
        assert (ROOT / path).exists(), path


def test_commands_are_one_line_each() -> None:
    for name in ("install", "test"):
        assert "\n" not in command(name)
        assert shlex.split(command(name))


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert command("test").replace("install", "install --quiet") in (ROOT / ".ci/run").read_text()


def test_the_pin_of_torch_is_in_the_constraints() -> None:
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert "torch==2.13.0" in pins


@pytest.mark.parametrize("cls", [Verdict, Timing, KernelTiming, Check])
def test_every_field_of_the_account_is_documented(cls: type) -> None:
    text = (ROOT / "docs" / "json.md").read_text("utf-8")
    for item in fields(cls):
        assert f"`{item.name}`" in text, item.name
