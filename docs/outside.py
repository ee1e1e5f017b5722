"""A hook of mkdocs: the pages that stand outside of docs/ are pages of the site, too.

In the repository README.md and its like stand where their readers look for them. The site has them
under names of its own, and links between all pages are written accordingly.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Each by its path from the root.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "LICENSE": "license.md",
    "LICENSE-EXCEPTION": "license-exception.md",
}
INSIDE = {name: path for path, name in OUTSIDE.items()}
# A link or a picture that is no address elsewhere and no anchor of its own page.
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages from outside."""
    for path, name in OUTSIDE.items():
        text = (ROOT / path).read_text("utf-8")
        if not path.endswith(".md"):
            text = f"# {path}\n\n```text\n{text}```\n"
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The page with its links as they are in the site."""
    folder = posixpath.dirname(INSIDE.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def linked(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[1] + OUTSIDE.get(path, path.removeprefix("docs/"))

    return LINK.sub(linked, markdown)
