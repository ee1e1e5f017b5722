"""What becomes of the mathematics of the models of examples/algebra/, and the graphs that are left."""

from __future__ import annotations

import difflib
import importlib.util
import os
from pathlib import Path

import pytest
import torch

from opweld.capture import capture
from opweld.driver.costs import costs_of
from opweld.ir.graph import arena_of
from opweld.ir.plan import Conditions
from opweld.ir.rules.algebra import Algebra
from opweld.ir.rules.effects import plan_lines
from opweld.ir.text import to_text
from opweld.simplify import simplify
from opweld.target import SM_90A

HERE = Path(__file__).parent / "algebra"
MODELS = sorted((Path(__file__).parents[2] / "examples" / "algebra").glob("*.py"))
WRITE = os.environ.get("OPWELD_WRITE_GOLDEN") == "1"


def captured(path: Path):
    """The graph of a model as it was captured, without touching its weights, and its batch size."""
    spec = importlib.util.spec_from_file_location(f"golden_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with torch.device("meta"):
        model = module.Model(*module.get_init_inputs())
        inputs = module.get_inputs()
    batch = inputs[0].shape[0]
    inputs = tuple(torch.empty_like(x[:16], device="cpu") for x in inputs)
    empty = model.to_empty(device="cpu").eval()
    return capture(empty, inputs, name=path.stem).variants[0].graph, batch


def text_of(path: Path) -> str:
    graph, batch = captured(path)
    sizes = (("s0", batch),)
    costs = costs_of(SM_90A, Conditions(sizes=sizes))
    parts = []
    for algebra in (Algebra.EXACT, Algebra.FINITE):
        after = simplify(graph, arena_of(graph), algebra=algebra, costs=costs)
        told = plan_lines(after.rewritten, algebra, sizes, after.left)
        if algebra is Algebra.EXACT or "finite" in " ".join(name for name, *_ in after.fired):
            parts += [*told, to_text(after.graph)]
    return "\n".join(parts)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_text(path: Path) -> None:
    place, text = HERE / f"{path.stem}.txt", text_of(path)
    if WRITE:
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
    kept = place.read_text(encoding="utf-8") if place.exists() else ""
    if text != kept:
        lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), lineterm="", n=2)
        pytest.fail("\n".join(["make golden rewrites the file:", *lines]), pytrace=False)


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in HERE.iterdir()} == {path.stem for path in MODELS}
