"""Accounts of a store: status, comparison, page, tables."""

from __future__ import annotations

import csv
import html.parser
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.suite.test_store import filled, result

from opweld.errors import UserError
from opweld.suite.reading import page, status
from opweld.suite.reading.compare import compare, lines
from opweld.suite.reading.export import export
from opweld.suite.store import Store


def test_the_status_counts_by_verdict_and_cause(tmp_path: Path) -> None:
    path = tmp_path / "s"
    filled(path, result("a", cause=""), result("b", verdict="failed", cause="own inputs"))
    with Store(path) as store:
        fault = {"fault": "worker lost", "detail": "d", "node": "n", "gpu": "", "log": ""}
        store.add_fault(run=1, unit="a", **fault)
        assert "2 of 3 ended, runs" in status.lines(path)[0]
    told = status.lines(path)
    assert told[0] == "check of pairs: 2 of 3 ended, stands still"
    assert "       1 failed: own inputs" in told and "       1 passed" in told
    assert "       1 attempts ended by: worker lost" in told


def ratio(unit: str, value: float, spread: float = 0.0, **more: Any) -> dict[str, Any]:
    known = {"ratio_low": value * (1 - spread), "ratio_high": value * (1 + spread)}
    return result(unit, ratio=value, **(known if spread else {}), **more)


def compared(tmp_path: Path, old: list[Any], new: list[Any]) -> list[tuple[str, str]]:
    before, after = tmp_path / "before", tmp_path / "after"
    filled(before, *old)
    filled(after, *new)
    found = compare(before, after)
    told = lines(found)
    assert len(told) >= len(found.changes) + 1
    return [(change.kind, change.name) for change in found.changes]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (ratio("u", 0.5, 0.02), ratio("u", 0.6, 0.02), "became slower"),
        (ratio("u", 0.6, 0.02), ratio("u", 0.5, 0.02), "became faster"),
        (ratio("u", 0.5, 0.2), ratio("u", 0.6, 0.2), None),
        (ratio("u", 0.5, 0.001), ratio("u", 0.51, 0.001), None),
        (ratio("u", 0.5), ratio("u", 0.55), None),
        (ratio("u", 0.5), ratio("u", 0.65), "became slower"),
        (ratio("u", 0.5, 0.02, opweld_ms=1.0), ratio("u", 0.5, 0.02, opweld_ms=9.0), None),
        (result("u"), result("u", verdict="failed"), "became wrong"),
        (result("u", verdict="lost"), result("u"), "became right"),
        (result("u", verdict="lost"), result("u", verdict="failed"), None),
    ],
)
def test_what_changed(tmp_path: Path, old: Any, new: Any, kind: str | None) -> None:
    assert compared(tmp_path, [old], [new]) == ([(kind, "u")] if kind else [])


def test_units_of_one_store_alone_are_counted_and_the_last_result_counts(tmp_path: Path) -> None:
    old = [result("a"), result("é"), result("gone"), result("z")]
    new = [result("new"), result("first", name="a", verdict="failed"), result("a"), result("é"),
           result("z", verdict="crashed")]  # fmt: skip
    assert compared(tmp_path, old, new) == [("became wrong", "z")]
    found = compare(tmp_path / "before", tmp_path / "after")
    assert (found.common, found.gone, found.new, found.is_worse) == (3, 1, 1, True)


EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)">'


class Seen(html.parser.HTMLParser):
    """Elements with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_runs_nothing_of_a_candidate_and_needs_no_network(tmp_path: Path) -> None:
    path, out = tmp_path / "s", tmp_path / "out.html"
    evil = result("u", name=EVIL, reason=EVIL, log=f"</pre>{EVIL}", cause=EVIL, device=f'"{EVIL}')
    filled(path, evil, result("v", ratio=0.25))
    page.write(path, out)
    text = out.read_text("utf-8")
    seen = Seen(text).found
    assert [tag for tag, _ in seen].count("script") == 1
    assert not [tag for tag, _ in seen if tag in ("img", "link", "iframe")]
    assert not [name for _, attrs in seen for name in attrs if name.startswith("on") or name in
                ("src", "href", "style")]  # fmt: skip
    (policy,) = [a["content"] for tag, a in seen if tag == "meta" and "http-equiv" in a]
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)
    script = re.search("<script>(.*?)</script>", text, re.DOTALL)
    assert style and script
    assert policy == page.policy(style[1], script[1]), "a browser knows its own by their digests"
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert len(re.findall("<tr data-verdict", text)) == 2 and ">0.25<" in text
    assert not list(tmp_path.glob("tmp*")), "nothing is left beside it"


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_table_has_a_row_for_each_unit(tmp_path: Path, ending: str) -> None:
    path, out = tmp_path / "s", tmp_path / f"out.{ending}"
    filled(path, *(result(str(n), ratio=n / 4, account={"é": [n]}) for n in range(5)))
    if ending == "parquet" and importlib.util.find_spec("pyarrow") is None:
        with pytest.raises(UserError, match="needs pyarrow"):
            export(path, out)
        return
    assert export(path, out) == 5
    found = table(out)
    assert [float(row["ratio"]) for row in found] == [0, 0.25, 0.5, 0.75, 1]
    assert json.loads(found[3]["account"]) == {"é": [3]}


def table(out: Path) -> list[dict[str, Any]]:
    if out.suffix == ".csv":
        with out.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    if out.suffix == ".jsonl":
        return [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    from pyarrow import parquet

    read = parquet.read_table(out)
    assert str(read.schema.field("ratio").type) == "double"
    return list(read.to_pylist())


def test_a_table_by_an_unknown_ending(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    with pytest.raises(UserError, match="ends in .xls; name a file that ends in .parquet"):
        export(tmp_path / "s", tmp_path / "out.xls")


def test_a_store_in_which_nothing_has_run(tmp_path: Path) -> None:
    Store(tmp_path / "s").close()
    assert status.lines(tmp_path / "s") == ["nothing has run yet"]
