"""The benchmarks' scripts can be started, and the file of a run keeps each case's last figures."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from benchmarks.record import keep, slug

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
NO_SCRIPTS = ("record", "one_expression", "compiled")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_script_imports_exists(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    names = runpy.run_path(str(script))
    assert "main" in names or script.stem in NO_SCRIPTS


def test_a_case_that_runs_again_replaces_its_figures_alone(tmp_path: Path) -> None:
    path, names = tmp_path / "suite.json", ["one", "two", "three"]
    first, second = {"date": "2026-01-01"}, {"date": "2026-02-02"}
    keep(path, {"suite": "gpu", **first}, first, {"name": "three", "ms": 3.0}, names)
    keep(path, {"suite": "gpu", **first}, first, {"name": "one", "ms": 1.0}, names)
    keep(path, {"suite": "gpu", **second}, second, {"name": "three", "ms": 4.0}, names)
    assert json.loads(path.read_text()) == {
        "suite": "gpu",
        **second,
        "cases": [
            {"name": "one", "ms": 1.0, "run": first},
            {"name": "three", "ms": 4.0, "run": second},
        ],
    }
    keep(path, second, second, {"name": "two", "ms": 2.0}, ["two", "three"])
    kept = json.loads(path.read_text())["cases"]
    assert [case["name"] for case in kept] == ["two", "three"], "a case that is no more goes"


def test_a_device_names_a_file() -> None:
    assert slug("NVIDIA H200") == "nvidia-h200"
    assert slug("CPU, 2 cores") == "cpu-2-cores"
