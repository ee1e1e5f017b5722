"""The documentation agrees with the code: generated parts, links, paths, commands, the account."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
import typer

from opweld.compiled import PlanRow
from opweld.emission.package import ORIGINAL, SUPPORT
from opweld.interface.cli import app
from opweld.judge.inputs.kinds import value_kinds
from opweld.judge.inputs.layouts import layout_kinds
from opweld.judge.inputs.sizes import batch_kinds, inner_kinds
from opweld.judge.levels import DEFAULT, THOROUGH
from opweld.judge.load import Call
from opweld.judge.measure import consistency, significance
from opweld.judge.measure.clock import FLUSH_BYTES
from opweld.judge.measure.rounds import (
    BLOCK_MS,
    EMPTY_RATIO,
    EMPTY_SPREAD,
    MAX_ROUNDS,
    MIN_ROUNDS,
)
from opweld.judge.values import Check, KernelTiming, Settings, Timing, Verdict
from opweld.options import Options

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "opweld"
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))
PAGES: tuple[Path, ...] = GENERATE["PAGES"]
README = (ROOT / "README.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
# Files that a reader makes, or that a command writes for him.
MADE = (
    *("_new.py", "MODEL.py", "OTHER.py", "gelu_hand.py", "x.py", "chain.json", "account.json"),
    *("ACCOUNT.json", "gelu.json", "gelu.html", "summary.md"),
    # A diff of its page makes it.
    "tests/emulation/test_streaming.py",
    *(ORIGINAL, SUPPORT, "/K.cu", "/K_host.cpp", "K.cpp", "/device.cuh", "/host.h"),
)
PATH = re.compile(r"[\w./-]+\.(?:py|h|cuh|md|csv|txt|json|toml|yaml|cu|cpp)|[\w.-]+/[\w./-]*")
ids = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def prose(page: Path) -> str:
    """The page without what was generated: that names files of the user's world."""
    return re.sub(r"<!-- generated:.*?<!-- end -->", "", page.read_text("utf-8"), flags=re.DOTALL)


def quoted(text: str) -> Iterator[str]:
    """What stands between backticks inside a line."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from (found.replace("\n", " ") for found in re.findall(r"`([^`]+)`", outside))


def commands(page: Path) -> list[list[str]]:
    """Every command of the page, from its shell blocks and from between backticks."""
    # The two marked commands have tests of their own.
    text = re.sub(r"<!-- command:.*?```sh\n.*?```", "", prose(page), flags=re.DOTALL)
    blocks = re.findall(r"^```sh[^\n]*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [found for found in quoted(text) if found.startswith(("opweld ", "python3 ", "make "))]
    parts = [part for line in lines for part in re.split(r"&&|\|\|?(?= )|;(?= )", line)]
    return [words for words in map(words_of, parts) if words]


def words_of(command: str) -> list[str]:
    """Without assignments of variables in front, braces around, and comments behind."""
    words = shlex.split(command.replace("$(", " ").replace(")", " "), comments=True)
    while words and (re.match(r"[A-Z_]+=", words[0]) or words[0] in "{}"):
        words = words[1:]
    return words


def heading_anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def command(name: str) -> str:
    found = re.search(rf"<!-- command:{name} -->\n```sh\n(.*?)\n```", README, re.DOTALL)
    assert found
    return found[1]


@ids
def test_generated_parts_are_fresh(page: Path) -> None:
    text = page.read_text("utf-8")
    assert GENERATE["generated"](text) == text, "run python3 docs/generate.py"


def test_a_stale_part_is_seen() -> None:
    page = "<!-- generated:targets -->\nold\n<!-- end -->"
    assert "| `sm_90a` | H200 | sm_90a | 132 |" in GENERATE["generated"](page)
    between = GENERATE["stage"].__globals__["_between"]
    lines = ["def f():", "  a", "class B:", "  def f():", "    b", "end"]
    assert between(lines, "^class//def f", "^end") == ["def f():", "  b"]


@ids
def test_links_lead_somewhere(page: Path) -> None:
    outside = re.sub(r"^( *)```.*?^\1```", "", prose(page), flags=re.DOTALL | re.MULTILINE)
    for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", outside):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in heading_anchors(file), anchor


@ids
def test_files_that_are_named_exist(page: Path) -> None:
    """A path may be given from the root, from src/opweld, or from the page's own folder."""
    for text in quoted(prose(page)):
        if not PATH.fullmatch(text) or text.endswith(MADE) or text.startswith("torch_ext"):
            continue
        if text.startswith(
            "benchmarks/results"
        ):  # written by the benchmarks, on each machine its own
            continue
        places = (ROOT / text, SOURCES / text, page.parent / text)
        assert any(place.exists() for place in places), text


@ids
def test_commands_exist_with_their_options(page: Path) -> None:
    for words in commands(page):
        if words[0] == "opweld":
            assert_is_command_of_ours(words[1:])
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words
        elif words[0] == "python3" and words[1].endswith(".py"):
            assert_script_takes(ROOT / words[1], words[2:])
        elif words[:2] == ["python3", "-m"] and words[2].startswith("tests"):
            assert (ROOT / f"{words[2].replace('.', '/')}.py").exists(), words
        elif words[:3] == ["python3", "-m", "pip"]:
            assert_can_be_installed(words[3:])
        elif words[:3] == ["python3", "-m", "pytest"]:
            named = [w for w in words[3:] if w.startswith("tests") and w not in MADE]
            assert all((ROOT / w).exists() for w in named), words


def assert_is_command_of_ours(words: list[str]) -> None:
    group = typer.main.get_command(app)
    known = group.commands  # type: ignore[attr-defined]
    assert words[0] in known, words
    command = known[words[0]]
    if inner := getattr(command, "commands", None):  # `opweld suite SPEC` is its first one
        command = inner.get("".join(words[1:2]), inner["run"])
    flags = {flag for option in command.params for flag in option.opts}
    for word in words[1:]:
        assert not word.startswith("-") or word in flags, words
        if word.startswith(("examples/", "benchmarks/")) and not word.endswith(MADE):
            assert (ROOT / word).exists(), word


def assert_script_takes(script: Path, words: list[str]) -> None:
    assert script.exists(), script
    text = script.read_text("utf-8")
    for word in words:
        name = word.removeprefix("--").replace("-", "_")
        assert not word.startswith("--") or re.search(rf"^    {name}: Annotated", text, re.M), word


def assert_can_be_installed(words: list[str]) -> None:
    """Names stand in the constraints, extras in pyproject.toml; no index is asked."""
    assert words[0] == "install", words
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pairs = zip(["", *words], words, strict=False)
    for before, word in pairs:
        if before == "-c":
            assert (ROOT / word).exists(), word
        elif word.startswith("."):
            assert re.fullmatch(r"\.(\[\w+\])?", word), word
            assert word == "." or word[2:-1] in extras["optional-dependencies"], word
        elif not word.startswith(("-", "https://")) and word != "install":
            assert re.search(rf"^{word}==", pins, re.MULTILINE), word


@ids
def test_options_and_variables_that_are_named_exist(page: Path) -> None:
    group = typer.main.get_command(app)
    known = [*group.commands.values()]  # type: ignore[attr-defined]
    known += [inner for c in known for inner in getattr(c, "commands", {}).values()]
    options = {flag for c in known for o in c.params for flag in o.opts}
    plugin = (ROOT / "src/opweld/interface/pytest_plugin.py").read_text("utf-8")
    options |= set(re.findall(r'"(--opweld-[\w-]+)"', plugin))
    scripts = "".join(path.read_text("utf-8") for path in (ROOT / "benchmarks").glob("*.py"))
    variables = {item.metadata["env"] for item in fields(Options)}
    for text in quoted(prose(page)):
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]+", text):
            own = f"    {flag[2:].replace('-', '_')}: Annotated" in scripts
            assert flag in options or own, flag
        for variable in re.findall(r"OPWELD_[A-Z_]+", text):
            assert variable in variables, variable


def test_the_checks_that_are_described_are_those_of_the_judge() -> None:
    """By their names, which stand as literals in its sources."""
    sources = "".join(path.read_text("utf-8") for path in (SOURCES / "judge").rglob("*.py"))
    page = (ROOT / "docs" / "6-measuring.md").read_text("utf-8")
    table = page.partition("| check | what it finds |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1].strip() for row in table.splitlines()[2:]]
    # NaN, infinities, signed zeros is one; the four kinds of storage are a row.
    described = [n for c in cells for n in (c.split(", ") if "storage" in c else [c])]
    assert len(described) > 15
    for name in described:
        assert f'"{name}' in sources or f'NAME = "{name}"' in sources, name


def test_every_kind_of_inputs_is_described() -> None:
    page = (ROOT / "docs" / "6-measuring.md").read_text("utf-8")

    def own(draw: int) -> Call:
        return Call((torch.randn(2, 3, 4, 5),), {})

    kinds = (
        *value_kinds(own, 0),
        *batch_kinds(own, 0),
        *inner_kinds(own, 0),
        *layout_kinds(own, 0),
    )
    for kind in kinds:
        assert re.sub(r" of \d+", " of", kind.name) in page, kind.name


def _power(number: int | None) -> str:
    assert number and number.bit_count() == 1
    return f"2^{number.bit_length() - 1}"


def test_numbers_of_the_judge_are_those_of_the_code() -> None:
    page = " ".join((ROOT / "docs" / "6-measuring.md").read_text("utf-8").split())
    assert f"more than {100 * (significance.MARGIN - 1):.0f} % longer than eager" in page
    assert f"less than {100 * significance.LEVEL:.0f} %" in page
    assert f"in each of {significance.NUM_SETS} sets" in page
    assert f"Fewer than {significance.LEAST_PAIRS} pairs" in page
    assert f"{Settings().budget_s:g} s each, {MIN_ROUNDS} to {MAX_ROUNDS}" in page
    assert f"as many calls of one side as take {BLOCK_MS:g} ms" in page
    assert f"add up to {consistency.SHARE * 100:g} % of that" in page
    assert f"or {consistency.ANSWER_JITTER_MS:g} ms a block" in page
    assert f"counts no further than {EMPTY_RATIO:g} times one of the baseline" in page
    assert f"differs by more than {EMPTY_SPREAD * 100:g} % of what calls take" in page
    assert "{} to {} of them".format(*DEFAULT.num_repeats) in page
    assert f"may take {consistency.DEFERRED_SHARE * 100:g} % of a call longer" in page
    assert f"or {consistency.FETCH_JITTER_MS:g} ms, or three times" in page
    assert f"may be {consistency.DISTURBED_RATIO:g} times as slow" in page
    assert f"a write over {FLUSH_BYTES // 2**20} MiB" in page
    assert f"{Settings().time_limit_s:g} s" in page
    for level in (DEFAULT, THOROUGH):
        row = (
            f"{_power(level.max_elems['cpu'])} ({_power(level.max_elems['cuda'])}) |"
            f" {_power(level.max_flops['cpu'])} ({_power(level.max_flops['cuda'])}) |"
            f" {level.num_repeats[0]} to {level.num_repeats[1]} | {3 * level.num_batches} |"
        )
        assert row in page, row
    assert f"at most {_power(DEFAULT.max_float64)} elements" in page


def test_every_module_can_be_found_by_its_first_lines() -> None:
    """Each file and package says what it is for."""
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES.rglob("*.py")
        if not path.read_text("utf-8").startswith('"""')
    ]
    assert silent == []


def test_commands_are_one_line_each() -> None:
    for name in ("demo", "test"):
        assert command(name) == f"make {name}"
        recipe = re.search(rf"^{name}:.*\n\t@(scripts/{name}\.sh)\n", MAKEFILE, re.MULTILINE)
        assert recipe and os.access(ROOT / recipe[1], os.X_OK)


def test_ci_runs_the_commands_of_the_readme_in_their_order() -> None:
    """As its own function reads them from the page, whole."""
    script = (ROOT / ".ci/run").read_text("utf-8")
    assert re.findall(r"^readme_runs (\w+)$", script, re.MULTILINE) == ["demo", "test"]
    assert README.index("<!-- command:demo -->") < README.index("<!-- command:test -->")
    (reads,) = re.findall(r"^readme_command\(\) \{\n.*?^\}$", script, re.MULTILINE | re.DOTALL)
    for name in ("demo", "test"):
        call = ["bash", "-c", f"{reads}\nreadme_command {name}"]
        done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout == f"{command(name)}\n"


def test_what_the_readme_writes_is_no_part_of_the_repository() -> None:
    (written,) = re.findall(r" -o (\S+) ", (ROOT / "scripts" / "demo.sh").read_text("utf-8"))
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert f"/{Path(written).parent}/" in ignored


def test_the_pin_of_torch_is_in_the_constraints() -> None:
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert "torch==2.13.0" in pins


@pytest.mark.parametrize(
    "suite", ["gpu-nvidia-h200", "cpu-cpu-2-cores", "text-and-time-sm_90a-cpu-2-cores"]
)
def test_the_page_of_benchmarks_has_the_marks_of_the_figures(suite: str) -> None:
    table = runpy.run_path(str(ROOT / "benchmarks" / "table.py"))
    text = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    page = table["between_marks"](text, suite, "| figures |")
    assert page.count("| figures |") == 1
    assert page.partition("| figures |")[2].startswith(f"\n<!-- {suite} ends -->")


def test_every_table_of_the_page_of_benchmarks_is_that_of_its_account() -> None:
    table = runpy.run_path(str(ROOT / "benchmarks" / "table.py"))
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    found = re.findall(r"<!-- (\S+) begins -->\n(.*?)\n?<!-- \1 ends -->", page, re.DOTALL)
    assert len(found) > 10
    for name, text in found:
        account = ROOT / "benchmarks" / "results" / f"{name}.json"
        if text or account.exists():
            made = table["text_of"](json.loads(account.read_text("utf-8")))
            assert text == made, f"python3 benchmarks/table.py {account} --into {page}"


@pytest.mark.parametrize("cls", [Verdict, Timing, KernelTiming, Check, PlanRow])
def test_every_field_of_the_account_is_documented(cls: type) -> None:
    text = (ROOT / "docs" / "json.md").read_text("utf-8")
    for item in fields(cls):
        assert f"`{item.name}`" in text, item.name


@pytest.mark.parametrize("width", [80, 120])
def test_the_picture_is_whole_and_asks_for_nothing(width: int) -> None:
    picture = (ROOT / "docs" / f"terminal-{width}.svg").read_text("utf-8")
    picture = re.sub(r"<!--.*?-->", "", picture, flags=re.DOTALL)
    ElementTree.fromstring(picture)
    assert "Verdict" in picture and "EQUIVALENT" in picture.replace("&#160;", " ")
    assert set(re.findall(r"https?://[^\s\"')]+", picture)) == {"http://www.w3.org/2000/svg"}
