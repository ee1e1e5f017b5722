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
from benchmarks import algebra, batch_norm, training
from benchmarks.first_contact import timed
from benchmarks.overview import ROWS, Row, table
from benchmarks.product_rows import tells
from benchmarks.products import CASES
from benchmarks.record import EQUAL_RUNS, keep, runs_that_differ, slug
from benchmarks.refusal import fault_of, why_refused
from benchmarks.table import attention, products, shares_of_copy, text_of

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
NO_SCRIPTS = (
    "record",
    "one_expression",
    "compiled",
    "convolutions",
    "networks",
    "emitted_lines",
    "text_table",
    "refusal",
    "profiled",
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


ERROR = {"rms": 1.0, "max": 1.0}
WRONG = {
    "its grade": ({"grade": "F"}, "grade F"),
    "the grade of its error": ({"error": {**ERROR, "grade": "F"}}, "grade F"),
    "a failed verdict": ({"verdict": {"passed": False, "grade": "A"}}, "not equivalent"),
    "the grade of a verdict": ({"verdict": {"passed": True, "grade": "F"}}, "grade F"),
    "a NaN": ({"error": {**ERROR, "max": float("nan")}}, "NaN"),
    "runs": ({"different_runs": 3, "runs": 20}, "3 of 20 runs differ"),
    "calls": ({"unequal_runs": 2, "runs": 20}, "2 of 20 runs differ"),
    "no kernels": ({"kernels_ran": 0}, "its kernels did not run"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_result_that_is_wrong_is_refused_whatever_account_says_so(case: str) -> None:
    more, reason = WRONG[case]
    assert fault_of(more) == reason and why_refused(more) == f"wrong: {reason}"


def test_a_result_of_grade_c_that_does_not_change_is_not_refused() -> None:
    right = {"grade": "C", "error": ERROR, "different_runs": 0, "runs": 20, "kernels_ran": 1}
    assert why_refused(right) is None
    assert why_refused({**right, "unequal_runs": 2, "eager_unequal_runs": 1}) is None
    assert why_refused({"status": 0, "timing": {}}) == "no result: status 0"
    assert (
        why_refused({**right, "problem": "OutOfMemoryError: of the device"}) == "OutOfMemoryError"
    )


RUN = {"date": "2026-01-01", "command": "c"}
HEAD = {"device": "d", "date": "2026-01-01", "command": "c", "versions": {"torch": "2"}}
SAMPLES = {"median": 1.25}
# An account of each script whose tables have times of ours, all of them 1.25; one case each.
ACCOUNTS: dict[str, dict[str, Any]] = {
    "run.py": {
        "cases": [{
            "name": "a", "status": 0, "verdict": {"passed": True, "grade": "A", "checks": []},
            "timing": {"eager_ms": {"median": 2.0}, "compile_ms": {"median": 2.0},
                       "opweld_ms": SAMPLES, "limit_ms": 1.0},
        }],
    },
    "cpu_reductions.py": {
        "cases": [{
            "name": "a, 2 threads", "threads": 2, "eager_ms": 2.0, "compile_ms": 2.0,
            "opweld_ms": 1.25, "rms_error": {"opweld": 1.0, "eager": 1.0},
        }],
    },
    "transposes.py": {
        "suite": "transposes",
        "cases": [{"name": "a", "opweld_ms": 1.25, "contiguous_ms": 2.0, "copy_ms": 1.0,
                   "share_of_copy": 0.8, "run": RUN}],
    },
    "bare_convolutions.py": {
        "suite": "bare-convolutions",
        "cases": [{"name": "a", "grade": "A", "floor_ms": 1.0, "eager_ms": 2.0, "opweld_ms": 1.25,
                   "error": {"rms": 1.0, "eager_rms": 1.0, "tf32_rms": 1.0}, "run": RUN}],
    },
    "products.py": {
        "copy_gbps": 1.0,
        "cases": [{"name": "a", "eager_ms": 2.0, "opweld_ms": 1.25, "tflops": 1.0, "run": RUN,
                   "share_of_copy": 0.8, "error": ERROR, "eager_error": ERROR}],
    },
    "reductions.py": {
        "scale": 1.0,
        "cases": [{"name": "a", "eager_ms": 2.0, "opweld_ms": 1.25, "share_of_copy": 0.8,
                   "run": RUN, "error": ERROR, "eager_error": ERROR}],
    },
    "attention.py": {
        "cases": [{"name": "a", "eager_ms": 2.0, "opweld_ms": 1.25, "flops": 1e9, "run": RUN,
                   "error": ERROR, "eager_error": ERROR}],
    },
    "network_speed.py": {
        "suite": "network-speed",
        "cases": [{"name": "a", "kind": "speed", "ms": {"eager": 2.0, "opweld": 1.25}, "runs": 20,
                   "error": {"max": 1.0, "eager_max": 1.0, "grade": "A"}, "run": RUN}],
    },
}  # fmt: skip


@pytest.mark.parametrize("wrong", [{"grade": "F"}, {"different_runs": 1, "runs": 20}], ids=str)
@pytest.mark.parametrize("script", ACCOUNTS)
def test_no_table_has_the_time_of_a_wrong_result(script: str, wrong: dict[str, Any]) -> None:
    account = {**HEAD, **ACCOUNTS[script]}
    (case,) = account["cases"]
    times = "1250.0" if script == "transposes.py" else "1.25"
    assert times in text_of(account)
    text = text_of({**account, "cases": [{**case, **wrong}]})
    assert times not in text and ("grade F" in text or "1 of 20 runs differ" in text)


def test_a_wrong_product_gives_no_row_of_the_table_of_schedules() -> None:
    case = next(case for case in CASES if case.plain and case.target == "auto")
    result = {"plan": "ours", "opweld_ms": 1.0, "eager_ms": 2.0}
    assert tells(case, result)
    assert not tells(case, {**result, "different_runs": 1, "runs": 20})


def test_the_overview_names_cases_that_exist_and_refuses_wrong_ones(tmp_path: Path) -> None:
    rows = table().splitlines()
    assert len(rows) == len(ROWS) + 2 and not any("wrong" in row for row in rows)
    case = {"name": "a", "eager_ms": 5.0, "compile_ms": 4.0, "autotune_ms": 3.0, "opweld_ms": 2.0}
    cases = [case, {**case, "name": "b", "grade": "F"}]
    (tmp_path / "r.json").write_text(json.dumps({"device": "NVIDIA H200", "cases": cases}))
    shown = table((Row("one", "r", "a"), Row("two", "r", "b")), tmp_path).splitlines()
    assert shown[2] == "| one | 5 | 3 | **2** | 2.50 | 1.50 | H200 |"
    assert shown[3] == "| two | wrong: grade F |  |  |  |  | H200 |"


def test_a_command_that_fails_has_no_seconds_in_the_table(tmp_path: Path) -> None:
    good = timed("good", [sys.executable, "-c", "pass"], tmp_path)
    bad = timed("bad", [sys.executable, "-c", "raise SystemExit(2)"], tmp_path)
    assert "problem" not in good and bad["problem"] == "exit code 2"
    text = text_of({**HEAD, "suite": "first-contact", "cases": [good, bad]})
    assert "| bad | exit code 2 |" in text and f"{bad['seconds']:.2g}" not in text.splitlines()[-1]


def test_backends_have_no_figures_of_wrong_results() -> None:
    good = {"name": "a", "eager_ms": 4.0, "inductor_ms": 3.0, "opweld_ms": 2.0, "eager_error": 2.0}
    good |= {"opweld_error": 1.0, "graphs": 3, "with_kernels": 2}
    cases = [good, {**good, "grade": "F"}, {**good, "warnings": ["no"]}, {"problem": "E: it"}]
    cases += [{**good, "runs": 20, "different_runs": 1}]
    named = [{**case, "name": str(number)} for number, case in enumerate(cases)]
    rows = text_of({**HEAD, "suite": "backend", "cases": named}).splitlines()[-5:]
    assert rows[0] == "| 0 | 4 | 3 | 2 | 2.00 | 1.50 | 2 of 3 | 0.50 |"
    said = ["wrong: grade F", "wrong kernels", "E", "wrong: 1 of 20 runs differ"]
    assert [row.split(" | ")[1] for row in rows[1:]] == said


def test_copies_of_a_model_are_told_with_what_they_were_called() -> None:
    case = {"name": "a", "speeds": [1.5, 0.9], "slower": 1, "eager_us": 51.3}
    cases = [case, {**case, "faster": 2}]
    rows = text_of({**HEAD, "suite": "judged-against-itself", "cases": cases}).splitlines()[-2:]
    assert rows[0] == "| a | 51 | 0.90, 1.50 | 1 | not kept |"
    assert rows[1].endswith("| 1 | 2 |")


def test_any_models_have_no_figures_of_calls_that_differ() -> None:
    row = {"field": "text", "status": "whole", "kernels": 2, "lines": 9, "emit_s": 1.0}
    row |= {"build_s": 2.0, "eager_ms": 2.0, "torch.compile_ms": 4.0, "opweld_ms": 1.0}
    models = {
        "right": {**row, "equal": True},
        "with a state": {**row, "opweld_ms": 0.5, "equal": None},
        "varies": {**row, "equal": False},
        "refused": {"field": "text", "status": "none", "verdict": "CaptureError: a line"},
    }
    sizes = {"width": 8}
    account = {**HEAD, "suite": "any-model", "what": "time", "sizes": sizes, "models": models}
    rows = text_of(account).splitlines()[-5:]
    assert rows[0].endswith("| 3 | 2 | 4 | 1 | 2.00 | 4.00 |")
    assert "equal calls differ" in rows[2] and "1.00" not in rows[2]
    assert "CaptureError" in rows[3]
    assert rows[4].startswith("| geometric mean of 2 ") and rows[4].endswith("| 2.83 | 5.66 |")
    judged = {"a": {**row, "seconds": 3.2, "verdict": "grade A"}}
    told = text_of({**account, "what": "judge", "models": judged}).splitlines()[-1]
    assert told == "| a | text | whole | 2 | 9 | 3 | grade A |"


def test_examples_of_algebra_have_their_sizes_in_one_line() -> None:
    for path in algebra.EXAMPLES.glob("*.py"):
        text = path.read_text("utf-8")
        assert algebra.with_sizes(text, 1) == text
        smaller = algebra.with_sizes(text, 64)
        assert smaller != text and len(smaller.splitlines()) == len(text.splitlines())
    assert "ROWS, WIDTH = 16, 8\n" in algebra.with_sizes("ROWS, WIDTH = 1024, 256\n", 64)


def test_the_account_of_a_rewritten_model(tmp_path: Path) -> None:
    store = tmp_path / "algebra.json"
    algebra.main(["axis_of_one"], "exact", 64, 0.01, False, store)
    (case,) = json.loads(store.read_text())["cases"]
    assert case["name"] == "axis_of_one" and "sum-of-product" in case["rules"]
    assert case["rewritten_floor_ms"] <= case["floor_ms"] and case["saved_flops"] > 0
    assert case["opweld_error"] <= 2 * case["eager_error"] + 1e-7
    assert {"eager_ms", "opweld_ms", "rewritten"} <= case.keys()


DROPPED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(16, 16)

    def forward(self, x):
        return torch.nn.functional.dropout(torch.tanh(self.fc(x)), 0.5, self.training)

def get_inputs():
    return [torch.randn(64, 16)]

def get_init_inputs():
    return []
"""


def test_steps_that_draw_random_numbers_are_compared_with_eagers(tmp_path: Path) -> None:
    cases = []
    for name, rate in (("live", "0.5"), ("none", "0.0")):
        path = tmp_path / f"{name}.py"
        path.write_text(DROPPED.replace("0.5", rate))
        cases.append({"name": name, **training.measured(path, tmp_path, None, 0.001, False)})
    live, none = cases
    assert live["eager_error"] is None and live["opweld_error"] is None
    assert live["from_eager"] < 1e-6 and "random numbers" in live["note"]
    assert "random numbers" in training.text_of(live)
    assert 0 < none["opweld_error"] < 1e-6 and "note" not in none
    account = {**HEAD, "suite": "training", "cases": [{**case, "run": RUN} for case in cases]}
    text = text_of(account)
    rows = text.splitlines()[-2:]
    assert rows[0].endswith("| - | - |") and "| - |" not in rows[1]
    assert text.count(training.DRAWN) == 1
