"""The diffs of the pages about extending are applied to a copy of the sources, and what these pages
say is run there.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, ROOT, Block, blocks_of
from tests.docs.session import compare

WORKED = tuple(page for page in PAGES if any(b.language == "diff" for b in blocks_of(page)))
COPIED = ("src/opweld", "tests", "examples", "pyproject.toml")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "results", "golden", "cheats", "coverage", "*.pt")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources and tests, as far as the pages need them."""
    folder = tmp_path_factory.mktemp("original")
    for name in COPIED:
        source, copy = ROOT / name, folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=LEFT_OUT)
        else:
            shutil.copy(source, copy)
    return folder


@pytest.mark.parametrize("page", WORKED, ids=lambda page: page.stem)
def test_the_diffs_of_a_page_do_what_it_says(page: Path, original: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(original, copy)
    blocks = blocks_of(page)
    apply([block for block in blocks if block.language == "diff"], copy)
    printed = ""
    for block in (b for b in blocks if not b.is_marked and b.language != "diff"):
        if block.title.endswith(".py") and "/" not in block.title:
            (copy / block.title).write_text(block.body)
        elif block.title:
            assert block.body.strip() in (ROOT / block.title).read_text("utf-8"), str(block)
        elif block.language == "sh":
            printed = ran(block, copy)
        elif block.follows == "sh":
            compare(block, printed)


def apply(diffs: list[Block], copy: Path) -> None:
    """Line by line as they stand, wherever in its file a hunk has its place."""
    for diff in diffs:
        command = ["git", "apply", "--unidiff-zero", "--whitespace=nowarn", "-"]
        environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)}
        done = subprocess.run(
            command, cwd=copy, input=diff.body, text=True, capture_output=True, env=environ
        )
        assert done.returncode == 0, f"{diff} does not apply: {done.stderr}"


def ran(block: Block, copy: Path) -> str:
    """What the commands print; each has to end well."""
    environ = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
    environ.pop("PYTEST_ADDOPTS", None)
    printed = ""
    for line in block.body.splitlines():
        words = shlex.split(line)
        command = {"opweld": ["-m", "opweld"], "python3": []}[words[0]] + words[1:]
        done = subprocess.run(
            [sys.executable, *command], cwd=copy, env=environ, capture_output=True, text=True
        )
        # Of pytest 5 is: no test has such a name.
        assert done.returncode == 0, f"{block}: {line}\n{done.stdout}{done.stderr}"
        printed += done.stdout
    return printed


def test_a_diff_that_is_stale_is_seen(original: Path) -> None:
    diff = "--- a/pyproject.toml\n+++ b/pyproject.toml\n@@ -1,2 +1,2 @@\n [no-such]\n-old\n+new\n"
    with pytest.raises(AssertionError, match="does not apply"):
        apply([Block("p", 1, "diff", "", diff)], original)
