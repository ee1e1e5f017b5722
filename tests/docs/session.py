"""Runs the blocks of one page one after the other, in a folder with the examples.

The command line is the one of the user, in this process: models are compiled here instead of in a
child, and the judge's checks are made in full, but nothing is timed. What several pages do alike
is done once.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import linecache
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import ROOT, Block
from typer.testing import CliRunner

import opweld
from opweld.compiled import Compiled
from opweld.driver import compile_file
from opweld.interface import cli
from opweld.judge import check
from opweld.judge.values import Judgement, Settings
from opweld.options import Options

_compiled: dict[tuple[str, Options], Compiled] = {}
_judged: dict[tuple[str, str, Settings], Judgement] = {}


def compiled_here(path: Path, options: Options, on_stage: object = None) -> Compiled:
    key = f"{path.name}\n{path.read_text('utf-8')}", options
    if key not in _compiled:
        _compiled[key] = compile_file(path, options)
    return _compiled[key]


def judged_here(
    model: Path | str,
    new: Path | str,
    settings: Settings,
    on_event: object = None,
    server: object = None,
) -> Judgement:
    """By the checks; without times, which are no matter of tests."""
    model, new, settings = Path(model), Path(new), replace(settings, measure=False)
    key = model.read_text("utf-8"), _text_of(new), settings
    if key not in _judged:
        _judged[key] = check(model, new, settings)
    return _judged[key]


def judged_instead(model: Path, *_: object, **__: object) -> Judgement:
    """What the judge says of two small files, for pages that are about something else: checks of
    their own files take a minute.
    """
    text = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.relu()\n\n\ndef get_inputs():\n    return [torch.randn(4, 8)]\n"
        "\n\ndef get_init_inputs():\n    return []\n\n\nModelNew = Model\n"
    )
    small = model.resolve().parents[1] / "small.py"
    small.write_text(text)
    return judged_here(small, small, Settings(seed=0))


def _text_of(new: Path) -> str:
    files = sorted(new.glob("*.py")) if new.is_dir() else [new]
    return "\n".join(file.read_text("utf-8") for file in files)


class Session:
    """`given` are the names that a page takes as known; `judges` says that it is about verdicts."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, given: dict[str, Any], judges: bool = False
    ) -> None:
        self.folder, self.patch, self.printed, self.text = folder, patch, "", ""
        # A module with a file, for whoever looks for the source of a class.
        module = types.ModuleType("page")
        module.__file__ = str(folder / "page.py")
        vars(module).update(given)
        sys.modules.pop("gelu_new", None)  # of another page
        self.names = vars(module)
        patch.setitem(sys.modules, "page", module)
        (folder / "examples").mkdir()
        for file in (ROOT / "examples").glob("*.py"):
            text = re.sub(r"\nROWS, COLUMNS = \d+, ", "\nROWS, COLUMNS = 16, ", file.read_text())
            (folder / "examples" / file.name).write_text(text)
        patch.chdir(folder)
        # What pages show is of a CPU, also where there is a GPU.
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.syspath_prepend(str(folder))
        patch.setattr(cli, "compile_in_child", compiled_here)
        patch.setattr(cli, "judge_pair", judged_here if judges else judged_instead)
        patch.setattr(opweld, "check", judged_here)
        patch.setattr(cli, "started", lambda settings: contextlib.nullcontext())
        patch.setattr(opweld, "optimize", functools.partial(opweld.optimize, check=False))

    def run(self, block: Block) -> None:
        """Raises AssertionError, or what the block raises."""
        does: dict[str, Callable[[Block], None]] = {
            "python": self._python,
            "sh": self._shell,
            "text": self._compare,
        }
        if re.fullmatch(r"[\w-]+\.\w+", block.title):
            (self.folder / block.title).write_text(block.body)
        elif block.language == "text" and block.follows != "sh":
            return  # a drawing, or a message; test_blocks.py counts them
        elif block.title:
            lines = [line.strip() for line in block.body.splitlines()]
            text = (ROOT / block.title).read_text("utf-8")
            assert all(line in text for line in lines), f"{block}: not of {block.title}"
        else:
            does[block.language](block)

    def _python(self, block: Block) -> None:
        code = compile("\n" * self.text.count("\n") + block.body, self.names["__file__"], "exec")
        self.text += block.body
        Path(self.names["__file__"]).write_text(self.text)
        linecache.checkcache()
        exec(code, self.names)

    def _shell(self, block: Block) -> None:
        self.printed = ""
        for line in block.body.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            words = [found for word in words for found in sorted(glob.glob(word)) or [word]]
            {"opweld": self._opweld, "pip": self._pip}[words[0]](words[1:], block)

    def _opweld(self, words: list[str], block: Block) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["opweld", *words])
            done = CliRunner().invoke(cli.app, words)
        self.printed += done.output
        # 1 is a verdict, and the page has to show it.
        assert done.exit_code in (0, 1), f"{block}: opweld {' '.join(words)}: {done.output}"
        assert done.exit_code == 0 or "NOT EQUIVALENT" in done.output, done.output

    def _pip(self, words: list[str], block: Block) -> None:
        assert words[0] == "install", block
        command = [sys.executable, "-m", "pip", "-q", "install", "--no-index", "--no-deps"]
        place = ["--no-compile", "--target", "site-packages"]
        subprocess.run([*command, *place, *words[1:]], check=True, timeout=120)
        self.patch.syspath_prepend(str(self.folder / "site-packages"))

    def _compare(self, block: Block) -> None:
        assert ("NOT EQUIVALENT" in block.body) == ("NOT EQUIVALENT" in self.printed), str(block)
        compare(block, self.printed)


def compare(block: Block, printed: str) -> None:
    """Each line in its order, the parts between `...` likewise."""
    place = 0
    for line in block.body.splitlines():
        for part in filter(None, line.split("...")):
            found = printed.find(part, place)
            assert found >= 0, f"{block}: {part!r} is not in\n{printed[place:] or printed}"
            place = found + len(part)
