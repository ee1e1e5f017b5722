"""The report in a browser: what it shows in light, dark, narrow and on paper, and what it does not.

Where no Chromium is these are skipped; with CHROMIUM_REQUIRED set, as in CI, they fail.
"""

from __future__ import annotations

import base64
import hashlib
import html
import http.server
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.report import accounts

from opweld.judge.values import Check
from opweld.report import frame, page

Image = pytest.importorskip("PIL.Image")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    not CHROMIUM and not os.environ.get("CHROMIUM_REQUIRED"), reason="no chromium here"
)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--enable-logging=stderr", "--force-color-profile=srgb"),
)
DARK, LIGHT = "--blink-settings=preferredColorScheme=0", "--blink-settings=preferredColorScheme=1"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a page came to: the document as text, and what the console said."""

    dom: str
    console: list[str]


class Browser:
    def __init__(self, folder: Path) -> None:
        assert CHROMIUM, "install chromium: apt-get install chromium"
        self._folder, self._count = folder, 0

    def open(self, text: str, fragment: str = "") -> Seen:
        done = self._run(text, "--dump-dom", fragment=fragment)
        console = re.findall(r":CONSOLE(?:\(\d+\)|:\d+)\] (.*)", done.stderr)
        return Seen(done.stdout, console)

    def picture(self, text: str, *flags: str, size: tuple[int, int] = (1000, 1400)) -> object:
        out = self._folder / "picture.png"
        self._run(text, f"--screenshot={out}", "--window-size={},{}".format(*size), *flags)
        return Image.open(out).convert("RGB")

    def paper(self, text: str) -> bytes:
        out = self._folder / "paper.pdf"
        self._run(text, f"--print-to-pdf={out}", "--no-pdf-header-footer")
        return out.read_bytes()

    def _run(self, text: str, *flags: str, fragment: str = "") -> subprocess.CompletedProcess[str]:
        self._count += 1
        file, profile = self._folder / "page.html", self._folder / f"profile{self._count}"
        file.write_text(text, "utf-8")
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *flags]
        return subprocess.run(
            [*command, f"file://{file}{fragment}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


@dataclass(slots=True)
class Listener:
    """A server that notes who asks it for something."""

    address: str
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def listener() -> Iterator[Listener]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            self.send_error(404)

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Listener(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


def test_the_page_opens_without_a_word_on_the_console(browser: Browser) -> None:
    for made in (accounts.full(), accounts.unjudged(), accounts.refused()):
        seen = browser.open(page(made))
        assert seen.console == []
        assert "What was checked" in seen.dom
        assert ("k1_mul_tanh" in seen.dom) == bool(made.plan)


def test_texts_of_others_load_nothing_and_run_nothing(browser: Browser, listener: Listener) -> None:
    at = listener.address
    words = (
        f"<script>fetch('{at}/a')</script><img src='{at}/b' onerror='document.title=1'>"
        f"<link rel=stylesheet href={at}/c><iframe src={at}/d></iframe>",
        f"\"><img src={at}/e><style>@import '{at}/f';</style>",
    )
    for word in words:
        text = page(accounts.hostile(word))
        seen = browser.open(text)
        assert seen.console == []
        assert html.escape(word, quote=False) in seen.dom and "<script>" not in seen.dom
    assert listener.asked == []


def test_even_a_page_with_markup_in_it_loads_nothing(browser: Browser, listener: Listener) -> None:
    """The policy in its head holds where escaping would fail; without it all is asked for."""
    bad = f"<img src='{listener.address}/b'><script>document.title = 'ran'</script>"
    text = page(accounts.full()).replace("</main>", f"{bad}</main>")
    seen = browser.open(text)
    assert any("Content Security Policy" in line for line in seen.console)
    assert "<title>ran" not in seen.dom and listener.asked == []
    without = re.sub(r"<meta http-equiv=.*?>", "", text)
    assert "<title>ran" in browser.open(without).dom and listener.asked == ["/b"]


def style_of(text: str) -> str:
    return text.partition("<style>")[2].partition("</style>")[0]


def colours(picture: object, box: tuple[int, int, int, int]) -> dict[tuple[int, int, int], int]:
    part = picture.crop(box)  # type: ignore[attr-defined]
    return {colour: count for count, colour in part.getcolors(part.width * part.height)}


def test_light_and_dark_by_what_the_reader_prefers(browser: Browser) -> None:
    text = page(accounts.full())
    for flag, back, bar in (
        (LIGHT, (255, 255, 255), (217, 72, 15)),
        (DARK, (20, 23, 26), (255, 148, 87)),
    ):
        picture = browser.picture(text, flag)
        found = colours(picture, (0, 0, 1000, 1400))
        assert max(found, key=found.__getitem__) == back
        # the bar of ModelNew, 11.54 % of the column's width and 22 high; the roofline's first point
        assert found[bar] > 800


def test_a_narrow_window_has_nothing_beyond_its_edge(browser: Browser) -> None:
    """But for what scrolls by itself: the last columns have the colour of the page alone."""
    picture = browser.picture(page(accounts.full()), LIGHT, size=(500, 2600))
    beyond = colours(picture, (494, 0, 500, 2600))
    assert sum(n for colour, n in beyond.items() if colour != (255, 255, 255)) < 60
    wide = browser.picture(page(accounts.full()), LIGHT, size=(1000, 2600))
    assert len(colours(wide, (520, 0, 1000, 2600))) > 20


def test_what_is_collapsed_is_printed(browser: Browser) -> None:
    """More pages of paper than there would be of what is open."""
    made = accounts.full()
    assert made.verdict
    passed = tuple(Check(f"check {k}", True, "alike") for k in range(120))
    text = page(replace(made, verdict=replace(made.verdict, checks=passed)))
    collapsed = re.sub(r" *details::details-content \{.*?\}\n", "", text)
    digest = base64.b64encode(hashlib.sha256(style_of(collapsed).encode()).digest()).decode()
    collapsed = re.sub(r"sha256-[^']*", f"sha256-{digest}", collapsed, count=1)
    pages = [browser.paper(each).count(b"/Type /Page\n") for each in (text, collapsed)]
    assert pages[0] >= pages[1] + 2 >= 3


def test_a_link_leads_into_the_page_in_a_notebook_too(browser: Browser) -> None:
    """The frame's links name the frame: "#x" would be the notebook's."""
    text = html.unescape(frame(accounts.full()))
    links = set(re.findall(r'href="([^"]*)"', text))
    assert links and all(link.startswith("about:srcdoc#") for link in links)
    shown = f"<!DOCTYPE html><body>{frame(accounts.full())}</body>"
    assert browser.open(shown).console == []
    # On a busy machine a picture may be taken before the frame is painted.
    pictures = (browser.picture(shown, LIGHT, size=(900, 700)) for _ in range(5))
    whole = (0, 0, 900, 700)
    assert any((29, 122, 54) in colours(each, whole) for each in pictures)  # EQUIVALENT, inside
