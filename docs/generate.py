"""Writes the generated parts of the documentation: `python3 docs/generate.py`.

A part stands between `<!-- generated:NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "src"))

from opweld.options import environment_table, flag_table  # noqa: E402

PARTS: dict[str, Callable[[], str]] = {
    "options": flag_table,
    "environment": environment_table,
}
PART = re.compile(r"<!-- generated:(\w+) -->\n.*?<!-- end -->", re.DOTALL)


def generated(text: str) -> str:
    """The page with its parts as they should be."""
    return PART.sub(
        lambda match: f"<!-- generated:{match[1]} -->\n{PARTS[match[1]]()}<!-- end -->", text
    )


def main() -> None:
    for path in sorted(FOLDER.glob("*.md")):
        path.write_text(generated(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
