"""The parts of an emitted file that mutants are made of, with all that is no code blanked.

kernels    the C++ of this model's own kernels
library    what they use of opweld's device library
host       what PyTorch calls: it makes results, checks operands and runs kernels
forward    ModelNew's forward, its guard, and how kernels become operations
backward   the gradients and references of the kernels
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

PARTS = ("kernels", "library", "host", "forward", "backward")
_PART_OF = {"_CPU": "kernels", "_DEVICE": "library", "_MAIN": "host", "_HOST": "host"}
_TEXT = re.compile(r'^(_[A-Z]+)\w* = r"""(.*?)"""', re.MULTILINE | re.DOTALL)
_BACKWARD = re.compile(r"^def _\w+_(?:reference|backward)\(.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_CLASS = re.compile(r"^    def forward\(.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_HANDED = re.compile(r"^_fuse\(\n.*?^\)", re.MULTILINE | re.DOTALL)
# Comments, literal strings, and lines of the preprocessor but for what defines a function.
_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|^[ \t]*#.*?(?<!\\)$', re.M | re.S)
_NO_PYTHON = re.compile(r'#[^\n]*|"""(?:.*?)"""|"[^"\n]*"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of the file from `start`; `code` is as long, and blank where there is no code."""

    part: str
    start: int
    code: str


def regions(text: str) -> tuple[Region, ...]:
    """Where the emitted file `text` has code of the parts."""
    return tuple(sorted(_regions(text), key=lambda region: region.start))


def _regions(text: str) -> Iterator[Region]:
    for found in _TEXT.finditer(text):
        if found[1] in _PART_OF:
            yield Region(_PART_OF[found[1]], found.start(2), without_comments(found[2]))
    # The user's own file, as a text, comes before all of ours.
    first = next((found.start() for found in _TEXT.finditer(text)), len(text))
    for part, pattern in (("backward", _BACKWARD), ("forward", _CLASS), ("forward", _HANDED)):
        for found in pattern.finditer(text, first):
            yield Region(part, found.start(), _NO_PYTHON.sub(_blank, found[0]))


def without_comments(code: str) -> str:
    """C++ as long as it was, with blanks for comments, literal strings and the preprocessor."""
    return _NO_CODE.sub(_blank, code)


def _blank(found: re.Match[str]) -> str:
    return "".join(c if c == "\n" else " " for c in found[0])


def line_of(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
