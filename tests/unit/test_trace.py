"""The trace: times, checks, keeps, dumps and prints what the stages give."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from opweld.errors import OutputNotWritable
from opweld.ir.check import InvalidGraph
from opweld.ir.graph import Arena, Graph, Leaf
from opweld.ir.kernel import Source
from opweld.ir.ops import Op
from opweld.ir.text import to_text
from opweld.ir.types import DType, TensorType
from opweld.options import Options
from opweld.trace import Trace


def graph(name: str = "m") -> Graph:
    arena = Arena()
    x = arena.source(Op.INPUT, "x", "x", TensorType(DType.F32, (4,)))
    return Graph(name, (x,), (), (arena.make(Op.EXP, x),), Leaf(0), ())


SOURCE = Source("m", "cuda", "__global__ void k() {}\n", ("k",), "d1")


def traced(options: Options) -> tuple[Trace, str, list[str]]:
    stages: list[str] = []
    out = io.StringIO()
    trace = Trace(options, stages.append, out)
    trace.run("capture", graph)
    trace.run("simplify", graph, "first")
    trace.run("simplify", graph, "second")
    trace.note("rules", "mul-one 2\n")
    trace.run("render", lambda: SOURCE)
    trace.run("emit", lambda: "x = 1\n")
    return trace, out.getvalue(), stages


def test_stages_are_told_timed_and_kept() -> None:
    trace, printed, stages = traced(Options())
    assert stages == ["capture", "simplify", "simplify", "render", "emit"]
    assert set(trace.seconds) == set(stages)
    assert trace.texts["graph"] == to_text(graph("first")) + to_text(graph("second"))
    assert trace.texts["source"] == to_text(SOURCE)
    assert trace.texts["emit"] == "x = 1\n"
    assert printed == ""


def test_a_dump_has_every_stage(tmp_path: Path) -> None:
    trace, _, _ = traced(Options(dump=str(tmp_path / "new" / "folder")))
    files = {path.name: path.read_text() for path in (tmp_path / "new" / "folder").iterdir()}
    assert files == {
        "01-capture.txt": to_text(graph()),
        "02-graph.txt": trace.texts["graph"],
        "05-emit.py": "x = 1\n",
        "06-source.cu": to_text(SOURCE),
    }


def test_a_dump_that_cannot_be_written() -> None:
    with pytest.raises(OutputNotWritable, match="set OPWELD_DUMP to a folder that can be written"):
        traced(Options(dump="/proc/no"))


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (1, []),
        (2, []),
        (3, ["rules"]),
        (4, ["rules", "source"]),
        (5, ["capture", "graph", "graph", "rules", "source", "emit"]),
    ],
)
def test_each_debug_level_prints_more(level: int, shown: list[str]) -> None:
    lines = traced(Options(debug=level))[1].splitlines()
    assert [line.removeprefix("-- ") for line in lines if line.startswith("-- ")] == shown
    assert sum(line.endswith(" ms") for line in lines) == 5


def test_a_value_that_breaks_its_invariants_stops_the_line() -> None:
    broken = replace(graph(), inputs=())
    with pytest.raises(InvalidGraph):
        Trace(Options()).run("capture", lambda: broken)
