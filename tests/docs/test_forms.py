"""Forms for issues are such that a forge takes them, and the citation is of this version."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.blocks import ROOT

import opweld

yaml = pytest.importorskip("yaml", reason="comes with mkdocs")
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_is_whole(path: Path) -> None:
    form = yaml.safe_load(path.read_text("utf-8"))
    if path.stem == "config":
        assert form == {"blank_issues_enabled": True}
        return
    assert form["name"] and form["description"]
    asked = [item for item in form["body"] if item["type"] != "markdown"]
    assert all(item["attributes"]["label"] for item in asked)
    assert all(type(item["validations"]["required"]) is bool for item in asked)
    ids = [item["id"] for item in asked]
    assert len(set(ids)) == len(ids) and "doctor" in ids and "model" in ids
    assert all(item["type"] in ("textarea", "dropdown") for item in asked)


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == opweld.__version__
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"\n## {opweld.__version__}" in changes
