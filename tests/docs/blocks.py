"""The code blocks of a page, and what is to be done with each.

A fence's first word is its language, and a title may follow, which the site shows above the block:

- `title="NAME.py"` (or another file name): the block is that file, and what follows finds it;
- `title="FILE"` with a path of the repository: lines of that file;
- `title="not run in tests: WHY"`, `title="not compared in tests: WHY"`, `title="excerpt: WHAT"`: it
  is said to the reader.

A block without a title is run: Python in the page's namespace, `sh` by the command line, and `text`
below an `sh` block is what it prints, with `...` for what differs from run to run. `diff` blocks
are the business of `test_worked_diffs.py`. Generated parts are those of `docs/generate.py`.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\w+)([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"<!-- (?:generated|command):.*?(?:<!-- end -->|^```$)", re.DOTALL | re.M)
# All pages but that of the benchmarks, whose commands take minutes each on the machine that they
# name; tests/unit/test_docs.py sees that they exist.
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))


@dataclass(frozen=True, slots=True)
class Block:
    """`line` is where it begins; `follows` is what stands above it, if that is a block, too."""

    page: str
    line: int
    language: str
    title: str
    body: str
    follows: str = ""

    @property
    def is_marked(self) -> bool:
        """Whether the reader is told that it is not run as it stands."""
        return self.title.startswith(("not run in tests: ", "not compared in tests: ", "excerpt: "))

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The blocks that were written by hand, in their order."""
    text = page.read_text("utf-8")
    hidden = GENERATED.sub(lambda found: re.sub(r"[^\n]", "#", found[0]), text)
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(hidden):
        info = re.fullmatch(r'(?: title="([^"]+)")?', match[3])
        assert info, f"{page.name}: no title of the form that is known: {match[3]}"
        line = text.count("\n", 0, match.start()) + 1
        between = hidden[end : match.start()]
        near = found and "\n#" not in between and between.count("\n\n") <= 2
        follows = found[-1].language if near and not found[-1].is_marked else ""
        body = textwrap.dedent(match[4])
        found.append(Block(page.name, line, match[2], info[1] or "", body, follows))
        end = match.end()
    left = re.findall(r"^ *```.*", FENCE.sub("", hidden), re.MULTILINE)
    assert not left, f"{page.name}: of no language, or of no form that is known: {left}"
    return found
