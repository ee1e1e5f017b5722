"""Every code block of the pages is run, but for those that tell their reader that they are not."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.docs.blocks import PAGES, Block, blocks_of
from tests.docs.session import Session

import opweld

# What a page takes as known.
GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "README.md": lambda: {
        "opweld": opweld,
        "module": torch.nn.Tanh(),
        "example_inputs": (torch.randn(2, 3),),
        "inputs": (torch.randn(2, 3),),
    },
    "1-overview.md": lambda: {"torch": torch},
    "2-two-languages.md": lambda: {"torch": torch, "x": torch.randn(3, 4)},
    "suite.md": lambda: {"opweld": opweld, "pairs": [("examples/relu.py", "examples/relu.py")]},
    "torch-compile.md": lambda: {
        "opweld": opweld,
        "torch": torch,
        "model": torch.nn.Tanh(),
        "x": torch.randn(512, 512),
    },
}
# Pages about a file that was made before, by the command that made it.
MADE = "opweld optimize examples/gelu.py --target cpu --no-check -o gelu_new.py\n"
WITH_FILE = ("deploying.md", "emitted-file.md")
# Diffs are applied, and the rest of their pages is run in what comes of it.
WORKED = tuple(page for page in PAGES if any(b.language == "diff" for b in blocks_of(page)))
RUN = tuple(page for page in PAGES if page not in WORKED and blocks_of(page))
# Pages about verdicts, whose files are judged themselves.
JUDGES = ("judging-others.md", "precision.md")
# All blocks that are not run or compared, by what their titles say; excerpts are looked for in
# test_excerpts.py.
MARKED = {
    "README.md": ["not run in tests: installs"],
    "CONTRIBUTING.md": ["not run in tests: installs"],
    "3-adding-an-op.md": [
        "not run in tests: minutes",
        "not compared in tests: minutes",
        "not run in tests: minutes",
    ],
    "4-adding-a-schedule.md": ["not run in tests: needs a GPU", "not run in tests: needs a GPU"],
    "6-measuring.md": ["not run in tests: minutes", "not run in tests: needs a GPU"],
    "deploying.md": ["not run in tests: needs nvcc"],
    "stability.md": ["not run in tests: Windows", "not run in tests: installs"],
    "suite.md": ["not run in tests: minutes"],
}
# Texts that are no code and below no command: drawings, grammars, messages.
SHOWN = {
    "1-overview.md": 1,
    "2-two-languages.md": 2,
    "4-adding-a-schedule.md": 1,
    "5-numerics.md": 1,
    "6-measuring.md": 4,
    "deploying.md": 1,
    "emitted-file.md": 1,
}


def is_shown(block: Block) -> bool:
    return block.language == "text" and block.follows != "sh" and not block.is_marked


def test_what_is_not_run_is_listed() -> None:
    marked = {p.name: [b.title for b in blocks_of(p) if b.is_marked] for p in PAGES}
    excerpts = {name: [m for m in titles if "excerpt" not in m] for name, titles in marked.items()}
    assert {name: titles for name, titles in excerpts.items() if titles} == MARKED
    texts = {p.name: sum(map(is_shown, blocks_of(p))) for p in PAGES}
    assert {name: count for name, count in texts.items() if count} == SHOWN


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(tmp_path, monkeypatch, GIVEN.get(page.name, dict)(), page.name in JUDGES)
    if page.name in WITH_FILE:
        session.run(Block(page.name, 0, "sh", "", MADE))
    for block in blocks_of(page):
        if not block.is_marked:
            session.run(block)
    if page.name == "deploying.md":
        runs_in_cpp(session)


def runs_in_cpp(session: Session) -> None:
    """The program of the page, with the library that the wheel has and without it."""
    torch_folder = Path(torch.__file__).parent
    program = str(session.folder / "run")
    includes = [torch_folder / "include", torch_folder / "include/torch/csrc/api/include"]
    flags = ["-O0", "-std=c++20", *(f"-I{folder}" for folder in includes)]
    libraries = [f"-L{torch_folder}/lib", f"-Wl,-rpath,{torch_folder}/lib,--no-as-needed"]
    libraries += ["-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
    subprocess.run(["g++", *flags, "run.cpp", *libraries, "-o", program], check=True, timeout=300)
    (library,) = session.folder.glob("site-packages/gelu_new/*.so")

    def run(library: str) -> subprocess.CompletedProcess[str]:
        command = [program, library, str(session.folder / "gelu.pt2")]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    expected = session.names["Model"]()(torch.ones(3, 8192)).mean().item()
    assert float(run(str(library)).stdout) == pytest.approx(expected, rel=1e-5)
    refused = run("libm.so.6")
    assert re.search(
        "Could not find schema for opweld_gelu_new_.*::k1_mul_add_tanh", refused.stderr
    )


def test_a_fence_of_no_language_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for text in ("```\nx = 1\n```\n", "```python run\nx = 1\n```\n"):
        page.write_text(text)
        with pytest.raises(AssertionError, match="form that is known"):
            blocks_of(page)


def test_a_block_that_is_wrong_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(tmp_path, monkeypatch, {})
    with pytest.raises(ZeroDivisionError):
        session.run(Block("p", 1, "python", "", "1 / 0\n"))
    session.run(Block("p", 1, "sh", "", "opweld plan examples/relu.py --stage graph\n"))
    session.run(Block("p", 1, "text", "", "graph relu\n...relu %0\n", "sh"))
    for text in ("graph gelu\n", "return...graph\n"):
        with pytest.raises(AssertionError):
            session.run(Block("p", 1, "text", "", text, "sh"))
    with pytest.raises(AssertionError):
        session.run(Block("p", 1, "python", "examples/relu.py", "no such line\n"))
    with pytest.raises(AssertionError):
        session.run(Block("p", 1, "sh", "", "opweld plan missing.py\n"))
