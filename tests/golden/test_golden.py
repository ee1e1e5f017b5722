"""Every stage prints what the kept files say, byte by byte; `make golden` rewrites them."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from functools import cache

import pytest

from tests.golden.cases import EXAMPLES
from tests.golden.texts import FILES, HERE, example_graph, small_graphs, texts_of

ROOT = HERE.parents[1]
WRITE = os.environ.get("OPWELD_WRITE_GOLDEN") == "1"
SMALL = tuple(small_graphs())


@cache
def texts(name: str) -> dict[str, str]:
    graph = example_graph(name) if name in EXAMPLES else small_graphs()[name]
    return texts_of(graph)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("name", (*SMALL, *EXAMPLES))
def test_text(name: str, file: str) -> None:
    path, text = HERE / name / file, texts(name)[file]
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != kept:
        place = str(path.relative_to(ROOT))
        lines = difflib.unified_diff(
            kept.splitlines(), text.splitlines(), place, "what is printed now", lineterm="", n=2
        )
        pytest.fail("\n".join(["make golden rewrites the file:", *lines]), pytrace=False)


@pytest.mark.parametrize("name", (*SMALL, *EXAMPLES))
def test_generated_lines_are_short(name: str) -> None:
    for file in ("source.cu", "source.cpp"):
        long = [line for line in texts(name)[file].splitlines() if len(line) > 100]
        assert not long, f"{file}: {long[0]}"


def test_no_file_is_left_over() -> None:
    kept = {path.name for path in HERE.iterdir() if (path / "graph.txt").exists()}
    assert kept == {*SMALL, *EXAMPLES}


SCRIPT = """
from tests.golden.texts import small_graphs, texts_of
for name, graph in small_graphs().items():
    for file, text in texts_of(graph).items():
        print(f"== {name}/{file}")
        print(text, end="")
"""


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_other_hash_seeds_print_the_same_bytes(hash_seed: str) -> None:
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"src{os.pathsep}."}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    wanted = "".join(
        f"== {name}/{file}\n{(HERE / name / file).read_text(encoding='utf-8')}"
        for name in SMALL
        for file in FILES
    )
    assert done.stdout == wanted
