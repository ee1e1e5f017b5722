"""A busy machine is seen and said."""

from __future__ import annotations

import os

import pytest

from opweld.judge.measure import busy
from opweld.judge.measure.busy import busy_note, busy_share, processor_times

OWN = sorted(os.sched_getaffinity(0))[0]


def stat(worked: int, idle: int) -> str:
    line = f"{worked} 0 0 {idle} 0 0 0 0 0 0"
    return f"cpu  {line}\ncpu{OWN} {line}\ncpu99999 7 0 0 7 0 0 0 0 0 0\nintr 5\nctxt 9\n"


def test_only_processors_of_ones_own_count() -> None:
    assert processor_times(stat(30, 70)) == (30, 100)
    assert processor_times()[1] > 0


def test_the_share_is_that_of_the_time_between() -> None:
    assert busy_share((30, 100), (80, 200)) == 0.5
    assert busy_share((30, 100), (30, 100)) == 0.0


@pytest.mark.parametrize(("worked", "said"), [(10, False), (20, False), (40, True)])
def test_a_note_only_where_others_use_much(
    worked: int, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([(0, 0), (worked, 100)])
    monkeypatch.setattr(busy, "processor_times", lambda: next(readings))
    note = busy_note(0.0)
    assert bool(note) == said
    assert not said or "others use 40% of its processors" in note[0]
