"""Tables of text, time and speed: what failed, or is wrong, shows so; each line is counted once."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.emitted_lines import MARKER, PARTS, parts_of
from benchmarks.text_table import CHANNELS_LAST, bare_convolutions, network_speed, text_and_time

from opweld.device import pieces
from opweld.emission import piece


def case_of_text(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name, "run": {"date": "2026-01-01", "command": "c"}, "limit_s": 300.0,
        "at_most": {"lines": 300, "seconds": 6}, "load_average": 1.0,
        "lines": {"whole": 12, **dict.fromkeys(PARTS, 2)}, "kernels": 1,
        "seconds": {"capture": 1.0, "plan": 0.1, "emit": 0.1, "whole": 1.3, "build": 2.0,
                    "compile": 3.0},
        "processor": {"emit": 1.0, "build": 2.0, "compile": 3.0}, "problems": {}, **changed,
    }  # fmt: skip


def test_a_step_without_figures_says_why_in_the_table() -> None:
    late = {"problems": {"build": "did not return within its time limit of 300 s"}}
    emitted = {"capture": 1.0, "plan": 0.1, "emit": 0.1, "whole": 1.3}
    cases = [
        case_of_text("whole"),
        case_of_text("late", seconds=emitted, processor={"emit": 1.0}, **late),
        case_of_text(
            "bad", lines={}, kernels=None, seconds={}, processor={}, problems={"emit": "ended"}
        ),
    ]
    head = {"device": "d", "target": "cpu", "versions": {"torch": "2"}}
    rows = [line for line in text_and_time({**head, "cases": cases}) if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1 and len(rows) == 5
    assert "**12**" in rows[2] and "over" not in rows[2] and "failed" not in rows[2]
    assert "over 300 s" in rows[3] and "not run" in rows[3]
    assert "failed" in rows[4] and "12" not in rows[4]


def test_a_wrong_or_changing_result_has_no_speed_in_the_table() -> None:
    error = {"max": 1.0, "eager_max": 1.0, "grade": "A"}
    run = {"date": "2026-01-01", "command": "c"}
    times = {"eager": 2.0, "compile": 1.5, "opweld": 1.0}
    good = {
        "name": "good", "kind": "speed", "run": run, "ms": times, "error": error,
        "runs": 20, "unequal_runs": 0, "kernels_ran": 3,
    }  # fmt: skip
    wrong = {**good, "name": "wrong", "error": {**error, "grade": "F"}}
    changing = {**good, "name": "changing", "unequal_runs": 1}
    idle = {**good, "name": "idle", "kernels_ran": 0}
    summed = {**good, "name": "summed", "unequal_runs": 3, "eager_unequal_runs": 2}
    trained = {**good, "name": "trained", "ms_backward": {**times, "opweld": 4.0}}
    late = {"name": "late", "kind": "speed", "run": run, "problem": "not done in time: at 'build'"}
    recorded = {**good, "name": "recorded", "ms_recorded": {**times, "opweld": 0.5}}
    small = {
        "name": "small", "kind": "host", "run": run, "no_grad_us": times, "grad_us": times,
        **{name: good[name] for name in ("error", "runs", "unequal_runs", "kernels_ran")},
    }  # fmt: skip
    cases = [
        good,
        wrong,
        changing,
        idle,
        late,
        summed,
        trained,
        recorded,
        {**wrong, "name": "wrong, recorded", "ms_recorded": times},
        small,
        {**small, "unequal_runs": 2},
        {**good, "name": "flat", "kind": "convolutions", "ms": {**times, CHANNELS_LAST: 7.0}},
        {**good, "name": "of one axis", "kind": "convolutions"},
        {**wrong, "name": "wrong convolution", "kind": "convolutions"},
        {**good, "name": "many", "kind": "networks", "ms": {**times, CHANNELS_LAST: 8.0}},
    ]
    text = network_speed({"device": "d", "versions": {"torch": "2"}, "cases": cases})
    rows = {line.split("|")[1].strip(): line for line in text if line.startswith("|")}
    assert "**1**" in rows["good"] and "**1**" in rows["summed"]
    assert "**4**" in rows["trained, with its backward"]
    assert "| 2 | 7 | 1.5 | **1** |" in rows["flat"]
    assert "| 2 |  | 1.5 | **1** |" in rows["of one axis"]
    assert "| 2 | 8 | 1.5 | **1** |" in rows["many"]
    assert "| 2 |  | 1.5 | **0.5** | 4.00 |" in rows["recorded"]
    assert "**1**" not in rows["wrong, recorded"]
    for name in ("wrong", "changing", "idle", "late", "wrong convolution"):
        assert "**1**" not in rows[name], name
    assert "not done in time" in rows["late"]
    assert [line.count("**1**") for line in text if line.startswith("| small")] == [2, 0]


@pytest.mark.parametrize("language", ["cuda", "cpp"])
def test_every_line_of_an_emitted_file_is_counted_once(language: str) -> None:
    library = "\n".join(pieces(["tanh"], "cuda" if language == "cuda" else "cpp"))
    names = ("_CUDA", "_MAIN") if language == "cuda" else ("_CPU", "_MAIN")
    fixed = f"{MARKER}\n{piece('named').strip()}"
    lines = [
        '"""Head."""', "import torch",
        '_ORIGINAL = r"""', "class Model:", "    pass", '"""',
        f'{names[0]} = r"""', *library.splitlines(), "float own_of_this_model(float x) {", "}",
        '"""',
        f'{names[1]} = r"""', "// written for this model alone", '"""',
        "class ModelNew:", "    pass",
        *fixed.splitlines(),
    ]  # fmt: skip
    parts = parts_of("\n".join(lines) + "\n")
    assert sum(parts.values()) == len(lines)
    assert parts["original"] == 4 and parts["host"] == 3
    assert parts["support_python"] == len(fixed.splitlines())
    assert parts["support_cpp"] == len(library.splitlines())
    assert parts["kernels"] == 4


def test_single_convolutions_that_are_wrong_or_change_have_no_times_in_the_table() -> None:
    good = {
        "name": "good", "different_runs": 0, "runs": 20, "grade": "C", "floor_ms": 0.01,
        "eager_ms": 0.5, "channels_last_ms": 0.4, "opweld_ms": 0.25,
        "run": {"date": "2026-01-01", "command": "c"},
        "error": {"rms": 2e-4, "eager_rms": 1e-6, "tf32_rms": 1e-4},
    }  # fmt: skip
    cases = [good, {**good, "grade": "D"}, {**good, "different_runs": 1}]
    head = {"device": "d", "versions": {"torch": "2"}, "cases": cases}
    _, _, *rows = [line for line in bare_convolutions(head) if line.startswith("|")]
    right, *wrong = ([cell.strip() for cell in row.split("|")[1:-1]] for row in rows)
    times = ["0.0100", "0.5000", "0.4000", "", "**0.2500**", "2.00"]
    assert right == ["good", *times, "2.00", "C"]
    reasons = ("wrong: grade D", "wrong: 1 of 20 runs differ")
    assert wrong == [["good", reason, *[""] * 7] for reason in reasons]


def test_kernels_and_host_stand_beside_the_times_that_they_explain() -> None:
    case = {
        "name": "a", "kind": "convolutions", "run": {"date": "d", "command": "c"}, "runs": 20,
        "ms": {"eager": 0.2, "opweld": 0.125}, "unequal_runs": 0,
        "error": {"max": 1.0, "eager_max": 1.0, "grade": "A", "beside": "eager"},
    }  # fmt: skip
    apart = {"kernels_us": {"eager": 180.4, "opweld": 61.7}, "host_us": {"eager": 90.0}}
    apart["host_us"]["opweld"] = 124.6
    head = {"device": "d", "versions": {"torch": "2"}}

    def table(*cases: dict[str, Any]) -> str:
        return "\n".join(network_speed({**head, "cases": [*cases]}))

    assert "kernels" not in table(case)
    told = table({**case, **apart}, {**case, "name": "b"})
    assert "| 180 / 62 | 90 / 125 |" in told and "of ours by PyTorch's profiler" in told
    assert "180" not in table({**case, **apart, "unequal_runs": 1})
