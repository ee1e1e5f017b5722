"""Figures of the report, and how its plan is laid out, where a run is not the usual one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.report import accounts

from opweld.account import Account
from opweld.compiled import PlanRow
from opweld.judge.values import Errors, KernelTiming, Samples
from opweld.report import page
from opweld.report.accuracy import accuracy_of
from opweld.report.facts import commands_of, heading_of
from opweld.report.kernels import counted, figures_of, kernels_of, roofline_of
from opweld.report.listing import MOST_HIGHLIGHTED, highlighted, pieces_of
from opweld.report.plan_graph import MARGIN, plan_graph
from opweld.report.scale import LogScale
from opweld.report.times import times_of

SMALL = PlanRow("k1", "pointwise", ("mul",), "one", flops=100, must_bytes=50, moved_bytes=80)
LARGE = replace(SMALL, flops=1600, must_bytes=80, moved_bytes=160, number=1)
BY_BYTES = (KernelTiming("k1", 0.1, 50, 1.0, calls=3), KernelTiming("k1", 0.2, 80, 1.0))


def of(rows: tuple[PlanRow, ...], timings: tuple[KernelTiming, ...]) -> Account:
    return replace(accounts.full(), plan=rows, kernels=timings)


def test_operations_of_calls_of_several_sizes_are_found_by_what_they_must_move() -> None:
    kernels = kernels_of(of((SMALL, LARGE), BY_BYTES))
    slowest, other = figures_of(kernels)
    assert (slowest.ms, slowest.calls, slowest.intensity) == ("0.1", 3, "2")
    assert (other.ms, other.calls, other.intensity) == ("0.2", 1, "20")
    assert kernels[0].ms == pytest.approx(0.5)


def test_operations_that_could_be_of_another_call_are_not_known() -> None:
    kernels = kernels_of(of((SMALL, replace(LARGE, must_bytes=50)), BY_BYTES))
    assert [each.intensity for each in figures_of(kernels)] == ["–", "–"]
    timing = accounts.full().timing
    assert timing and roofline_of(kernels, timing) is None


def test_operations_are_counted_by_their_short_names() -> None:
    assert counted(("mul", "tanh", "mul", "aten.sort.default")) == "2 mul, tanh, sort"


def test_of_times_that_vary_no_speed_is_claimed() -> None:
    made = accounts.full()
    assert made.timing
    steady = heading_of(made).tiles
    unsteady = replace(made.timing, eager_ms=Samples(1.2, 0.2, 1.3, 50), notes=("a note",))
    shown = heading_of(replace(made, timing=unsteady)).tiles
    assert len(steady) == 4 and [tile.label for tile in shown] == [steady[-1].label]
    claim, note = times_of(unsteady).notes
    assert claim.startswith("Times vary 6-fold on this busy machine") and note == "a note"
    assert times_of(made.timing).notes == made.timing.notes


def test_without_a_time_of_model_new_no_speed_is_claimed() -> None:
    made = accounts.full()
    assert made.timing
    none = replace(made.timing, opweld_ms=Samples(0.0, 0.0, 0.0, 0))
    labels = [tile.label for tile in heading_of(replace(made, timing=none)).tiles]
    assert len(labels) == 1 and labels[0].startswith("largest error")


def test_the_judge_alone_is_run_again_by_one_command() -> None:
    refused = accounts.refused()
    assert commands_of(refused) == ["opweld check m.py n.py"]
    assert len(commands_of(accounts.full())) == 2


def chain(*reads: tuple[int, ...]) -> tuple[PlanRow, ...]:
    row = PlanRow("sort", "library", ("sort",), "no kernel sorts")
    return tuple(replace(row, number=k, reads=each) for k, each in enumerate(reads))


def test_values_share_a_lane_where_one_ends_before_the_other_begins() -> None:
    # 0 is read by 2, where a value begins that 4 reads; and 3, which crosses it, by 5
    rows = chain((), (0,), (0, 1), (2,), (2, 3), (3, 4))
    graph = plan_graph(rows, ())
    assert graph
    first, second, third = (lane.x for lane in graph.lanes)
    assert first == second == MARGIN and third > second
    heights = [placed.y + placed.height / 2 for placed in graph.items]
    ends = [[y for _, y in lane.ends] for lane in graph.lanes]
    assert ends == [[heights[2] - 6], [heights[4] - 6], [heights[5] - 6]]


def test_errors_stand_where_they_are_on_an_axis_of_whole_decades() -> None:
    own = replace(
        accounts.OWN,
        outputs=(),
        error_vs_f64=Errors(1e-9, 1e-7),
        eager_error_vs_f64=Errors(0.0, math.inf),
    )
    found = accuracy_of([own])
    assert found and [tick.label for tick in found.ticks] == ["10⁻⁹", "10⁻⁸", "10⁻⁷"]
    (line,) = found.outputs
    marks = (line.rms, line.eager_rms, line.most, line.eager_most)
    assert [(each.at, each.text, each.is_zero) for each in marks if each] == [
        (2.0, "1e-09", False),
        (2.0, "0", True),
        (98.0, "1e-07", False),
        (98.0, "inf", False),
    ]
    assert LogScale(-9, -7).at(1e-8) == pytest.approx(50.0)


def test_many_inputs_are_one_row() -> None:
    names = tuple(f"x{k}" for k in range(7))
    for few in (names[:6], names):
        graph = plan_graph((replace(SMALL, inputs=few, is_result=True),), ())
        assert graph
        titles = [placed.item.title for placed in graph.items]
        assert titles[-2:] == ["k1", "returns"]
        assert titles[:-2] == (["7 inputs"] if few == names else list(few))
    assert len(graph.steps) == 2


def test_a_comment_that_names_no_line_of_the_users_stays_in_the_kernel() -> None:
    text = "a();\n// other.py:3 of somebody's\n// m.py:3 the user's\nb();"
    first, second = pieces_of(text, accounts.LINES)
    assert first.lines == () and "other.py:3" in first.html
    assert [line.place for line in second.lines] == ["m.py:3"]


def test_a_long_text_is_shown_without_colours_as_it_is() -> None:
    line = "x = '<b>'"
    assert "<span" in highlighted(line, "python")[0]
    many = MOST_HIGHLIGHTED // len(line) + 1
    lines = highlighted("\n".join([line] * many), "python")
    assert len(lines) == many and set(lines) == {"x = &#39;&lt;b&gt;&#39;"}


def test_a_letter_that_ends_a_line_for_the_lexer_alone_shifts_none() -> None:
    for odd in ("a\r", "b\x0c", "c\u2028", "'''d\n"):
        text = f"x = 1\n{odd}y = 2\nz = 3"
        lines = highlighted(text, "python")
        assert len(lines) == text.count("\n") + 1
        assert "z" in lines[-1] and "y" in lines[-2]
    made = replace(accounts.full(), sources={"m.py": "x = 1\r\ny = 2\r\n"})
    assert page(made).count('class="no"') == 2
