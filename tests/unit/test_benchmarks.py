"""The benchmarks' scripts can be started, and the file of a run keeps each case's last figures."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import batch_norm
from benchmarks.record import EQUAL_RUNS, keep, runs_that_differ, slug, why_refused
from benchmarks.table import attention, products, shares_of_copy

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
NO_SCRIPTS = (
    "record",
    "one_expression",
    "compiled",
    "convolutions",
    "networks",
    "emitted_lines",
    "text_table",
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_script_imports_exists(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    names = runpy.run_path(str(script))
    assert "main" in names or script.stem in NO_SCRIPTS


def test_variants_of_a_batch_norm_change_its_text(tmp_path: Path) -> None:
    texts = [
        file.read_text() for file in batch_norm.emitted([16, 64, 112, 112], tmp_path, "sm_90a")
    ]
    assert len(set(texts)) == len(texts) == len(batch_norm.VARIANTS)


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


@pytest.mark.parametrize("made", [attention, products, shares_of_copy])
def test_each_row_of_a_table_has_the_cells_of_its_head(
    made: Callable[[dict[str, Any]], str],
) -> None:
    run = {"date": "2026-01-01", "command": "c"}
    error = {"rms": 1.0, "max": 1.0}
    whole = {
        "name": "a", "run": run, "eager_ms": 2.0, "compile_ms": 1.5, "opweld_ms": 1.0, "flops": 1e9,
        "tflops": 1.0, "share_of_copy": 0.5, "error": error, "eager_error": error,
    }  # fmt: skip
    failed = {"name": "b", "run": run, "problem": "OutOfMemoryError: of the device"}
    cases = [whole, failed, {**whole, "grade": "F"}]
    text = made({"device": "d", "versions": {"torch": "2"}, "cases": cases})
    rows = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert len(set(rows)) == 1 and len(rows) == 2 + len(cases)


def test_results_that_are_wrong_or_vary_have_no_figures() -> None:
    run = {"date": "2026-01-01", "command": "c"}
    error = {"rms": 1.0, "max": 1.0}
    right = {
        "name": "a", "run": run, "eager_ms": 2.25, "opweld_ms": 1.25, "flops": 1e9, "grade": "C",
        "error": error, "eager_error": error, "different_runs": 0, "runs": 20,
    }  # fmt: skip
    rows = {
        label: attention({"device": "d", "versions": {"torch": "2"}, "cases": [{**right, **more}]})
        for label, more in {
            "right": {},
            "wrong": {"grade": "F"},
            "varies": {"different_runs": 3},
        }.items()
    }
    assert "1.25" in rows["right"]
    assert "1.25" not in rows["wrong"] and "wrong: grade F" in rows["wrong"]
    assert "1.25" not in rows["varies"] and "wrong: 3 of 20 runs differ" in rows["varies"]


def test_runs_are_compared_bit_by_bit() -> None:
    calls = iter(range(EQUAL_RUNS + 1))
    same = torch.tensor([1.0, float("nan"), -0.0])
    assert runs_that_differ(lambda: same)["different_runs"] == 0
    varies = runs_that_differ(lambda: torch.tensor([-0.0 if next(calls) == 3 else 0.0]))
    assert varies["different_runs"] == 1
    assert why_refused(varies) == f"wrong: 1 of {EQUAL_RUNS} runs differ"
