"""Every code block of the pages is run, but for those that say to their reader that they are not."""

from __future__ import annotations

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
MADE = "opweld optimize examples/gelu.py --no-check -o gelu_new.py\n"
WITH_FILE = ("deploying.md", "emitted-file.md")
# Diffs are applied, and the rest of their pages is run in what comes of it.
WORKED = tuple(page for page in PAGES if any(b.language == "diff" for b in blocks_of(page)))
RUN = tuple(page for page in PAGES if page not in WORKED and blocks_of(page))
# All blocks that are not run or compared, by the page's file and what their titles say.
MARKED: dict[str, list[str]] = {}


def marks(page: Path) -> list[str]:
    return [block.title for block in blocks_of(page) if block.is_marked]


def test_what_is_not_run_is_listed() -> None:
    assert {page.name: marks(page) for page in PAGES if marks(page)} == MARKED


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(tmp_path, monkeypatch, GIVEN.get(page.name, dict)())
    if page.name in WITH_FILE:
        session.run(Block(page.name, 0, "sh", "", MADE))
    for block in blocks_of(page):
        if not block.is_marked:
            session.run(block)


def test_a_block_that_is_wrong_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(tmp_path, monkeypatch, {})
    with pytest.raises(ZeroDivisionError):
        session.run(Block("p", 1, "python", "", "1 / 0\n"))
    session.run(Block("p", 1, "sh", "", "opweld plan examples/relu.py --stage graph\n"))
    session.run(Block("p", 1, "text", "", "graph relu\n...relu %0\n", "sh"))
    for text, follows in (("graph gelu\n", "sh"), ("return...graph\n", "sh"), ("graph\n", "")):
        with pytest.raises(AssertionError):
            session.run(Block("p", 1, "text", "", text, follows))
    with pytest.raises(AssertionError):
        session.run(Block("p", 1, "python", "examples/relu.py", "no such line\n"))
    with pytest.raises(AssertionError):
        session.run(Block("p", 1, "sh", "", "opweld plan missing.py\n"))
