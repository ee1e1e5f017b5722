"""The site of the pages is built as CI's readers get it: strictly, whole, and loading nothing.

Links to elsewhere are looked at by their form alone, as tests have no network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.docs.blocks import ROOT

# CI has it; others may do without (pip install '.[docs]').
if not os.environ.get("DOCS_REQUIRED"):
    pytest.importorskip("mkdocs", reason="mkdocs-material is not installed")
    pytest.importorskip("material", reason="mkdocs-material is not installed")
ELSEWHERE = {
    "index": ROOT / "README.md",
    "changelog": ROOT / "CHANGELOG.md",
    "contributing": ROOT / "CONTRIBUTING.md",
    "security": ROOT / "SECURITY.md",
    "benchmarks": ROOT / "benchmarks" / "README.md",
}
PAGES = {**{page.stem: page for page in (ROOT / "docs").glob("*.md")}, **ELSEWHERE}


def built(folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(out)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = built(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


class Page(HTMLParser):
    """What tags its article has, where its links lead, what it loads, its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.in_article = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        self.in_article |= tag == "article"
        if "id" in has:
            self.anchors.add(has["id"])
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
        if tag in ("script", "img", "iframe") and "src" in has:
            self.loads.append(has["src"])
        if tag == "link" and has.get("rel") != "canonical":
            self.loads.append(has.get("href", ""))
        if self.in_article:
            is_block = tag == "div" and "highlight" in has.get("class", "").split()
            self.tags["block" if is_block else tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self.in_article &= tag != "article"


def written(page: Path) -> dict[str, int]:
    """What a page has by its Markdown, as GitHub reads it."""
    text = page.read_text("utf-8")
    outside = re.sub(r"^( *)```\w.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return {
        "block": len(re.findall(r"^ *```\w", text, re.MULTILINE)),
        "table": len(re.findall(r"^ *\|(?: *:?-+:? *\|)+$", outside, re.MULTILINE)),
        "li": len(re.findall(r"^ *(?:[-*]|\d+\.) ", outside, re.MULTILINE)),
    }


def test_pages_have_what_was_written(site: Path) -> None:
    """Markdown has dialects: what one shows as a list is a paragraph in another."""
    for name, source in PAGES.items():
        found = Page((site / f"{name}.html").read_text("utf-8")).tags
        expected = written(source)
        assert {tag: found[tag] for tag in expected} == expected, name


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    pages = {path.name: Page(path.read_text("utf-8")) for path in site.glob("*.html")}
    assert len(pages) > len(PAGES)
    for name, page in pages.items():
        if name == "404.html":
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https" and re.fullmatch(r"[\w.-]+\.\w+", parts.netloc), link
                continue
            target = pages.get(parts.path or name)
            exists = target is not None or (site / parts.path).exists()
            assert exists, f"{name}: {link}"
            if target and parts.fragment:
                assert parts.fragment in target.anchors, f"{name}: {link}"


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.glob("*.html"):
        loads = Page(path.read_text("utf-8")).loads
        assert loads and not [each for each in loads if urlsplit(each).netloc], path.name


@pytest.mark.parametrize("text", ["[a](no-such.md)", "[a](options.md#no-such-anchor)"])
def test_a_link_that_leads_nowhere_is_an_error(text: str, tmp_path: Path) -> None:
    """By the same settings, on two pages."""
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    settings = re.sub(r"^nav:.*", "", settings, flags=re.MULTILINE | re.DOTALL)
    settings = re.sub(r"^hooks:.*\n", "", settings, flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(settings.replace("name: material", "name: mkdocs"))
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "options.md", tmp_path / "docs")
    shutil.copy(ROOT / "docs" / "6-measuring.md", tmp_path / "docs")
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{text}\n")
    done = built(tmp_path, tmp_path / "out")
    assert done.returncode == 1 and text[4:-1] in done.stderr
