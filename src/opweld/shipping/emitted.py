"""An emitted file as text: what it was made for, what it builds, and how it loads that instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from opweld.emission.package import MAIN, LibraryTexts, library_texts
from opweld.emission.support import MARKER
from opweld.errors import UserError, Where
from opweld.model_file import read_source

_HEAD = re.compile(r'\A"""ModelNew for .+?, by opweld \S+ for (\S+)\.$', re.MULTILINE)
_BUILDS = re.compile(r'(^def _fuse\(.*?"""\n)(.*?)(?=^    def plain\()', re.MULTILINE | re.DOTALL)
_FLAGS = re.compile(r'flags\["extra_cflags"\] = \[(.*?)\]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Emitted:
    """`flags` are those that it gives the C++ compiler."""

    text: str
    target: str
    libraries: tuple[LibraryTexts, ...]
    flags: tuple[str, ...]


def read_emitted(path: Path) -> Emitted:
    """An emitted file, of which nothing is run.

    Raises:
        UserError: it is no such file, or has no kernels.
    """
    text = read_source(path)
    head, builds, flags = _HEAD.search(text), _BUILDS.search(text), _FLAGS.search(text)
    where = Where(str(path))
    if head is None:
        raise UserError(
            "is no file that opweld wrote",
            where=where,
            next_step="name one that `opweld optimize MODEL.py -o MODEL_new.py` writes",
        )
    if path.name == MAIN:
        raise UserError(
            "is of a package, and a wheel is made of a single file",
            where=where,
            next_step="write one with `opweld optimize MODEL.py -o MODEL_new.py`",
        )
    if MARKER not in text.splitlines() or builds is None or flags is None:
        raise UserError(
            "has no kernels, and needs no compiler as it is",
            where=where,
            next_step="copy the file",
        )
    given = tuple(re.findall(r'"([^"]+)"', flags[1]))
    return Emitted(text, head[1], library_texts(text), given)


def shipped_text(emitted: Emitted, facts: dict[str, object]) -> str:
    """The same file, which loads what was built: `facts` say what there is and what it needs."""
    shipped = f"# What was built, and what it needs.\n_SHIPPED = {facts!r}\n\n\n"
    loads = shipped + _piece("needs")

    def replaced(found: re.Match[str]) -> str:
        return loads + found[1] + _piece("shipped")

    return _BUILDS.sub(replaced, emitted.text, count=1)


@cache
def _piece(name: str) -> str:
    return resources.files(__package__).joinpath("texts", f"{name}.txt").read_text("utf-8")
