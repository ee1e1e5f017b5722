"""The report as text: what is said, what is said to be absent, what is inert, and its size."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from tests.report import accounts

from opweld.account import Account
from opweld.report import LARGEST_BYTES, frame, page

VOID = {"meta", "circle", "line", "rect", "path"}
CELLS = {"td", "th", "dd", "dt", "tspan", "code", "pre", "text"}
WORDS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><b>",
    "{{ 7 * 7 }}",
)


class Reader(HTMLParser):
    """Elements, attributes and text; and whether what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.shown = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.shown += " " if tag in CELLS else ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.shown += data


def read(account: Account) -> Reader:
    found = Reader(page(account))
    assert found.open == []
    return found


def shown(account: Account) -> str:
    return " ".join(read(account).shown.split())


def test_everything_of_a_run_is_shown() -> None:
    text = shown(accounts.full())
    for part in (
        "m.py EQUIVALENT, grade A on NVIDIA H200, torch 2.11",
        "the speed of eager 8.00× that of torch.compile 2.00× of the speed of the floor 80 %",
        "eager 1.2 ms 8.00× ModelNew's time",
        "floor 0.12 ms 80 % of ModelNew's time",
        "a step of training ModelNew 1.5 ms, eager 3 ms",
        "copies: 4240 GB/s products: 300 TFLOP/s",
        "k1_mul_tanh pointwise 1 0.14 512 7.812 28,571 85 %",
        "x input", "1 k1_mul_tanh mul, tanh; m.py:3", "sort sort", "returns",
        "sort the example call no kernel sorts",
        "m.py:3 inner = x * torch.tanh(x) return x * op::tanh(x);",
        "output[1] float32", "5e-09, 5.5e-09", "0.3 / 9 / 40",
        "3 checks passed, 0 failed, 1 were skipped",
        "training mode the original draws random numbers",
        "opweld optimize m.py --seed 3", "opweld check m.py m_new.py --seed 3",
        "a CPU, 16 threads", "A note",
    ):  # fmt: skip
        assert part in text, part


def test_what_is_not_there_is_said() -> None:
    text = shown(accounts.unjudged())
    for part in (
        "NOT VERIFIED",
        "No times: nothing was judged (--no-check).",
        "No roofline: no kernel was timed.",
        "No errors: nothing was judged (--no-check).",
        "Nothing: the file was written with --no-check.",
    ):
        assert part in text, part
    assert "k1_mul_tanh" in text
    assert "circle" not in read(accounts.unjudged()).tags
    refused = shown(accounts.refused())
    for part in (
        "NOT EQUIVALENT", "batch of 3: output: wrong", "new.cu:3: error: x is no name",
        "No times: the result was refused, or not to be measured.",
        "No plan: the judge alone ran", "No kernels", "First at [1, 2].",
        "3 checks passed, 1 failed",
    ):  # fmt: skip
        assert part in refused, part
    unknown = replace(accounts.full(), kernels=(), timing=None, timing_error="it was interrupted")
    assert "No times: it was interrupted." in shown(unknown)


def test_bars_and_marks_stand_where_the_figures_say() -> None:
    text = page(accounts.full())
    widths = dict(re.findall(r'<rect class="(\w+)" width="([\d.]+)%"', text))
    # of 1.3 ms, eager's 90th percentile
    assert widths == {"eager": "92.31", "compile": "23.08", "new": "11.54", "floor": "9.23"}
    assert '<line class="whisker" x1="84.62%" x2="100.0%"' in text
    # 28.571 TFLOP/s at 7.8125 operations a byte, below the 33.125 that copies allow
    ((x, y),) = re.findall(r'<circle class="point k0" cx="([\d.]+)" cy="([\d.]+)"', text)
    roofs = re.findall(
        r'class="roof" x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"', text
    )
    assert len(roofs) == 2
    x1, y1, x2, y2 = roofs[0]
    share = (float(x) - float(x1)) / (float(x2) - float(x1))
    roof = float(y1) + share * (float(y2) - float(y1))
    assert 0 < share < 1 and roof < float(y) < roof + 30


def test_the_graph_has_a_line_for_each_value_that_is_read() -> None:
    text = page(accounts.full())
    graph = text[text.index('class="graph"') : text.index("</svg>", text.index('class="graph"'))]
    # straight down: x to k1, k1 to sort, sort to k2, k2 to the end; by a lane: x and k1 to k2
    assert graph.count('<line class="lane"') == 4
    assert graph.count('<path class="lane"') == 2
    assert graph.count('<rect class="module"') == 2
    assert graph.count('href="#kernel-') == 2


def test_links_lead_to_something() -> None:
    found = read(accounts.full())
    ids = [value for name, value in found.attributes if name == "id"]
    targets = {value for name, value in found.attributes if name == "href"}
    assert targets and all(value.startswith("#") for value in targets)
    assert {value[1:] for value in targets} <= set(ids)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("word", WORDS)
def test_texts_of_others_are_inert(word: str) -> None:
    """As text they are shown; no element and no attribute comes of them."""
    found, plain = read(accounts.hostile(word)), read(accounts.hostile("word"))
    assert found.shown.count(word) > 25
    assert set(found.tags) <= set(plain.tags)
    names = {name for name, _ in found.attributes}
    assert names <= {name for name, _ in plain.attributes}
    assert not {"style", "src", "srcset"} & names
    assert not any(name.startswith("on") for name in names)
    assert not {"script", "img", "iframe", "link", "object", "form", "b"} & set(found.tags)


def test_the_policy_allows_the_one_style_and_nothing_else() -> None:
    text = page(accounts.full())
    ((policy,), (style,)) = (
        re.findall(r'Content-Security-Policy" content="([^"]*)"', text),
        re.findall(r"<style>(.*?)</style>", text, re.DOTALL),
    )
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert "url(" not in style and "@import" not in style


def test_a_page_stays_small_and_says_what_it_leaves_out() -> None:
    made = accounts.full()
    rows = tuple(
        replace(accounts.ROWS[0], name=f"k{k}", number=k, reads=(k - 1,) if k else ())
        for k in range(900)
    )
    texts = {row.name: f"// {row.name}\n" + accounts.KERNEL * 400 for row in rows}
    checks = tuple(replace(accounts.OWN, name=f"check {k}") for k in range(300))
    assert made.verdict
    large = replace(
        made,
        plan=rows,
        kernels=(),
        kernel_texts=texts,
        verdict=replace(made.verdict, checks=checks),
        sources={"m.py": "x = 1\n" * 20_000},
    )
    text = page(large)
    assert len(text.encode()) < LARGEST_BYTES
    assert "150 more checks." in text and "150 more kinds." in text
    assert "its source is too long for this page" in text and "500 more groups follow" in text
    assert "<code>m.py</code> is too long for this page" in text


def test_figures_that_are_no_numbers_do_not_stop_it() -> None:
    made = accounts.full()
    assert made.timing and made.verdict
    odd = float("nan")
    own = replace(accounts.OWN, error_vs_f64=None, outputs=(), max_ulp=float("inf"))
    bad = replace(accounts.OWN, outputs=(accounts.errors("a", odd), accounts.errors("b", 0.0)))
    for checks in ((own,), (bad,), ()):
        verdict = replace(made.verdict, checks=checks)
        assert read(replace(made, verdict=verdict)).shown
    still = replace(made.timing, limit_ms=0.0, copy_gbps=0.0)
    assert read(replace(made, timing=still)).shown


def test_in_a_notebook_it_is_a_frame_that_may_do_nothing() -> None:
    made = accounts.hostile(WORDS[1])
    found = Reader(frame(made))
    assert found.tags == ["iframe"]
    attributes = dict(found.attributes)
    assert attributes["sandbox"] == ""
    assert attributes["srcdoc"] == page(made, "about:srcdoc")
