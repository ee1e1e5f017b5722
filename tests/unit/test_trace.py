"""The trace: times, checks, keeps, dumps and prints what the stages give."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from opweld.errors import OutputNotWritable
from opweld.ir.check import InvalidGraph, check
from opweld.ir.graph import Arena, Graph, Leaf
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType
from opweld.options import Options
from opweld.trace import Trace


def graph(name: str = "m") -> Graph:
    arena = Arena()
    x = arena.source(Op.INPUT, "x", "x", TensorType(DType.F32, (4,)))
    return Graph(name, (x,), (), (arena.make(Op.EXP, x),), Leaf(0), ())


TEXTS = ("capture", "graph", "rules", "plan", "kernel", "source", "emit")


def traced(options: Options) -> tuple[Trace, str, list[str]]:
    stages: list[str] = []
    out = io.StringIO()
    trace = Trace(options, check, stages.append, out)
    trace.run("capture", graph)
    trace.run("simplify", graph, "first")
    trace.run("simplify", graph, "second")
    for name in TEXTS:
        trace.note(name, f"text of {name}\n", ".cu" if name == "source" else "")
    return trace, out.getvalue(), stages


def test_stages_are_told_and_timed_and_texts_kept() -> None:
    trace, printed, stages = traced(Options())
    assert stages == ["capture", "simplify", "simplify"]
    assert set(trace.seconds) == {"capture", "simplify"}
    assert trace.texts == {name: f"text of {name}\n" for name in TEXTS}
    assert printed == ""


def test_a_dump_has_every_stage(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    traced(Options(dump=str(folder)))
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "01-capture.txt": "text of capture\n",
        "02-graph.txt": "text of graph\n",
        "03-plan.txt": "text of plan\n",
        "04-kernel.txt": "text of kernel\n",
        "05-emit.py": "text of emit\n",
        "06-source.cu": "text of source\n",
    }


def test_a_dump_that_cannot_be_written() -> None:
    with pytest.raises(OutputNotWritable, match="set OPWELD_DUMP to a folder that can be written"):
        traced(Options(dump="/proc/no"))


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (0, ()),
        (1, ()),
        (2, ("plan",)),
        (3, ("rules", "plan")),
        (4, ("rules", "plan", "source")),
        (5, TEXTS),
    ],
)
def test_each_debug_level_prints_more(level: int, shown: tuple[str, ...]) -> None:
    lines = traced(Options(debug=level))[1].splitlines()
    assert tuple(line.removeprefix("-- ") for line in lines if line.startswith("-- ")) == shown
    assert sum(line.endswith(" ms") for line in lines) == (3 if level else 0)


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: (graph(), value)])
def test_a_value_that_breaks_its_invariants_stops_the_line(wrap: object) -> None:
    broken = replace(graph(), inputs=())
    with pytest.raises(InvalidGraph):
        Trace(Options(), check).run("capture", lambda: wrap(broken))


def test_what_has_no_check_goes_through() -> None:
    assert Trace(Options(), check).run("emit", lambda: "text") == "text"
