"""The driver: stages in order, groups that are given back, dumps, and what the account says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.behaviour.emitted import texts_in

from opweld.driver import compile_file
from opweld.options import AUTOCASTS, Options

MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
    def forward(self, x):
        return torch.tanh(self.inner(torch.sigmoid(x) * 2.0)) + x
def get_inputs():
    return [torch.ones(4, 8)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.py"
    path.write_text(MODEL)
    return path


def test_stages_run_in_order(model: Path) -> None:
    stages: list[str] = []
    compiled = compile_file(model, Options(target="cpu"), stages.append)
    assert list(dict.fromkeys(stages)) == list(compiled.seconds)
    assert stages[0] == "capture" and stages[-1] == "emit"
    assert stages.index("simplify") < stages.index("plan") < stages.index("lower")
    assert {"graph", "plan", "kernel", "source"} <= set(compiled.stages)


def test_the_account_of_the_groups(model: Path) -> None:
    compiled = compile_file(model, Options(target="cpu", autocast=AUTOCASTS), lambda stage: None)
    first, product, last = compiled.main_rows
    assert (first.kind, first.ops, first.flops is not None) == (
        "pointwise",
        ("sigmoid", "mul"),
        True,
    )
    assert (product.kind, product.ops) == ("library", ("aten.linear.default",))
    assert (last.kind, last.ops) == ("pointwise", ("tanh", "add"))
    assert first.replaced_copies == pytest.approx(2)  # each operation reads one and writes one
    assert last.replaced_copies == pytest.approx((2 + 3) / 3)
    assert product.replaced_copies is None
    assert compiled.library == ((product.name, product.reason),)
    assert {row.variant for row in compiled.plan_rows} == {
        "",
        "autocast bfloat16",
        "autocast float16",
    }


def test_an_excluded_group_is_left_to_pytorch(model: Path) -> None:
    whole = compile_file(model, Options(target="cpu"), lambda stage: None)
    name = whole.main_rows[0].name
    less = compile_file(model, Options(target="cpu", exclude=frozenset([name])), lambda stage: None)
    assert name not in [row.name for row in less.fused]
    assert [row.kind for row in less.main_rows] == ["library", "library", "pointwise"]
    assert "slower" in less.main_rows[0].reason


def test_with_every_group_excluded_the_original_is_left(model: Path) -> None:
    whole = compile_file(model, Options(target="cpu"), lambda stage: None)
    names = frozenset(row.name for row in whole.fused)
    none = compile_file(model, Options(target="cpu", exclude=names), lambda stage: None)
    assert none.fused == ()
    assert "load_inline" not in none.text
    new = next(
        node
        for node in ast.parse(none.text).body
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew"
    )
    assert "forward" not in [each.name for each in new.body if isinstance(each, ast.FunctionDef)]


@pytest.mark.parametrize(("target", "suffix"), [("cpu", ".cpp"), ("sm_90a", ".cu")])
def test_a_dump_has_the_six_files(model: Path, tmp_path: Path, target: str, suffix: str) -> None:
    folder = tmp_path / "dump"
    compiled = compile_file(model, Options(target=target, dump=str(folder)), lambda stage: None)
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert sorted(written) == [
        "01-capture.txt",
        "02-graph.txt",
        "03-plan.txt",
        "04-kernel.txt",
        "05-emit.py",
        f"06-source{suffix}",
    ]
    assert written["05-emit.py"] == compiled.text
    texts = texts_in(compiled.text)
    kernels = texts["_CPU" if target == "cpu" else "_CUDA"]
    assert written[f"06-source{suffix}"] == f"{texts['_DEVICE']}\n{kernels}"


def test_rows_name_the_lines_and_the_submodule_behind_them(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(NESTED, "utf-8")
    rows = compile_file(path, Options(target="cpu", check=False)).main_rows
    told = [(row.module, row.places) for row in rows if row.kind == "pointwise"]
    assert told == [("inner.block", ("two.py:8", "two.py:9")), ("", ("two.py:19",))]


NESTED = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
    def forward(self, x):
        y = torch.sigmoid(x) * 2.0
        return self.linear(torch.tanh(y) + x)
class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
    def forward(self, x):
        return self.block(x)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.inner = Inner()
    def forward(self, x): return torch.relu(self.inner(x)) * 3.0
def get_inputs():
    return [torch.ones(4, 8)]
def get_init_inputs():
    return []
"""


SPARSE = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.eye(3).to_sparse())

    def forward(self, x):
        return torch.tanh(self.table @ x) * 2.0


def get_inputs():
    return [torch.randn(3, 4)]


def get_init_inputs():
    return []
"""


def test_a_sparse_buffer_is_the_librarys(tmp_path: Path) -> None:
    path = tmp_path / "sparse.py"
    path.write_text(SPARSE, "utf-8")
    made = compile_file(path, Options(target="cpu", check=False))
    assert "k1_tanh_mul" in made.text
