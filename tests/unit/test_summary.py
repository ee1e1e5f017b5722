"""The summary in GitHub's Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from opweld.errors import UserError
from opweld.interface.summary import append_summary, markdown, summary_file
from opweld.judge.values import Check, Errors, Judgement, Verdict

NAMES = Path("model.py"), Path("folder/model_new.py:f")
GOOD = Check("own inputs", True, "", grade="A", error_vs_f64=Errors(1e-8, 2e-8),
             eager_error_vs_f64=Errors(1e-8, 3e-8), max_ulp=2.0, ulp_p99=1.0)  # fmt: skip


def judgement(passed: bool, *checks: Check, reason: str = "") -> Judgement:
    verdict = Verdict(passed, "A" if passed else "F", checks, reason)
    return Judgement(verdict, None, (), None, 5)


def test_the_verdict_comes_first() -> None:
    text = markdown(judgement(True, GOOD), NAMES)
    head, verdict, *_ = text.split("\n\n")
    assert head == "### opweld: `model_new.py:f` against `model.py`"
    assert verdict == ":white_check_mark: **EQUIVALENT, grade A**"
    assert "| own inputs | 1.00e-08 | 1.00e-08 | 3.00e-08 | 2.00e-08 | 2 | 1 | A |" in text
    assert "- scope: the example call" in text


def test_failures_stand_above_errors_and_long_tables_are_collapsed() -> None:
    bad = Check("batch of 3", False, "it raised", grade="F")
    text = markdown(judgement(False, *[GOOD] * 20, bad, reason="batch of 3: it raised"), NAMES)
    assert ":x: **NOT EQUIVALENT: batch of 3: it raised**" in text
    assert text.index("Failed\n\n| check |") < text.index("<summary>Error against float64")
    assert text.count("<details>") == text.count("</details>") == 2


def test_what_a_candidate_says_is_no_markup() -> None:
    said = "raised <img src=x> | `**[link](http://x)**` # @someone"
    text = markdown(judgement(False, Check("own inputs", False, said), reason=said), NAMES)
    assert "<img" not in text and "[link]" not in text and " @someone" not in text
    rows = [line for line in text.splitlines() if line.startswith("| own inputs")]
    assert len(rows) == 1 and rows[0].replace("\\|", "").count("|") == 4


def test_it_is_appended_to_the_steps_own_file(tmp_path: Path) -> None:
    step, own = tmp_path / "step", tmp_path / "folder" / "own.md"
    assert summary_file(None, {}) is None
    assert summary_file(None, {"GITHUB_STEP_SUMMARY": str(step)}) == step
    assert summary_file(own, {"GITHUB_STEP_SUMMARY": str(step)}) == own
    for _ in range(2):
        append_summary(own, "text\n")
    assert own.read_text() == "text\ntext\n"
    with pytest.raises(UserError, match="cannot be written"):
        append_summary(tmp_path, "text")
