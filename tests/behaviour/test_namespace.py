"""Emitted files that share a namespace: with the original, each other, and whatever follows."""

from __future__ import annotations

import ast
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import Pair, emitted_text, kernels_in, leaves
from tests.behaviour.models import SOURCES


def run_in(namespace: dict[str, Any], text: str) -> dict[str, Any]:
    exec(compile(text, "<cell>", "exec"), namespace)
    return namespace


def made(cls: Any, init: list[Any]) -> Any:
    torch.manual_seed(0)
    return cls(*init).eval()


def check(new: Any, old: Any, inputs: list[torch.Tensor], num_kernels: int = 1) -> None:
    with torch.no_grad():
        for ours, theirs in zip(leaves(new(*inputs)), leaves(old(*inputs)), strict=True):
            torch.testing.assert_close(ours, theirs)
        assert kernels_in(lambda: new(*inputs)) == num_kernels


@pytest.mark.parametrize("start", [{}, {"__name__": "__main__"}])
def test_alone_in_a_namespace(pair: Pair, start: dict[str, Any]) -> None:
    """As a notebook cell: no file name, and the name of the session's own module."""
    space = run_in(dict(start), pair.text)
    old, new = (made(space[name], space["get_init_inputs"]()) for name in ("Model", "ModelNew"))
    check(new, old, space["get_inputs"](), pair.num_kernels)


def test_run_twice(pair: Pair) -> None:
    space = run_in({}, pair.text)
    first = made(space["ModelNew"], space["get_init_inputs"]())
    run_in(space, pair.text)
    second = made(space["ModelNew"], space["get_init_inputs"]())
    for model in (first, second):
        check(model, made(space["Model"], space["get_init_inputs"]()), space["get_inputs"]())


def test_in_the_originals_namespace(pair: Pair) -> None:
    space = run_in({}, pair.source)
    before = dict(space)
    run_in(space, pair.text)
    changed = {name for name, value in before.items() if space[name] is not value}
    assert changed <= {"__doc__"}
    old, new = (made(space[name], space["get_init_inputs"]()) for name in ("Model", "ModelNew"))
    check(new, old, space["get_inputs"](), pair.num_kernels)


def test_new_names_begin_with_an_underscore(pair: Pair) -> None:
    space = run_in({}, pair.text)
    ours = {name for name in space if not name.startswith("_")}
    assert ours == {"torch", "ModelNew", "Model", "get_inputs", "get_init_inputs"}


def test_rebinding_names_breaks_neither_class(linear: Pair) -> None:
    """The original says super(Model, self), and reads its own module's names."""
    space = run_in({}, linear.source)
    run_in(space, linear.text)
    old_class, new_class, init = space["Model"], space["ModelNew"], space["get_init_inputs"]()
    space["Model"] = space["ModelNew"] = space["_Original"] = space["_original"] = int
    for name in [name for name in space if name.startswith(("_", "in_", "out_"))]:
        if not name.startswith("__"):
            space[name] = None
    new = made(new_class, init)
    torch.manual_seed(0)
    x = torch.randn(8, 24)
    with torch.no_grad():
        assert kernels_in(lambda: new(x)) == 1
    wanted = x.clone().requires_grad_()
    assert torch.autograd.grad(new(wanted).sum(), wanted)[0].any()
    assert torch.vmap(new)(x[None]).shape == (1, 8, 40)
    assert new_class.adopt(made(new_class.__base__, init))(x).shape == (8, 40)
    assert new.double()(x.double()).dtype == torch.float64
    with pytest.raises(TypeError):
        old_class(*init)


def test_two_files_in_one_namespace(pairs: dict[str, Pair]) -> None:
    space: dict[str, Any] = {}
    classes = {}
    for name, pair in pairs.items():
        run_in(space, pair.text)
        classes[name] = space["ModelNew"]
    for name, pair in pairs.items():
        old, _ = pair.models()
        check(made(classes[name], pair.original.get_init_inputs()), old, pair.inputs())
        inputs = [x.clone().requires_grad_() for x in pair.inputs()]
        new = made(classes[name], pair.original.get_init_inputs())
        ours = torch.autograd.grad(leaves(new(*inputs))[0].sum(), inputs[0])
        theirs = torch.autograd.grad(leaves(old(*inputs))[0].sum(), inputs[0])
        torch.testing.assert_close(ours, theirs)
        assert classes[name].__base__.forward.__globals__["__doc__"] == pair.original.__doc__


def test_two_files_in_one_process(pairs: dict[str, Pair]) -> None:
    for pair in pairs.values():
        old, new = pair.models()
        check(new, old, pair.inputs(), pair.num_kernels)


def test_helper_classes_of_the_original_pickle(branches: Pair, tmp_path: Path) -> None:
    """A new process that can import the emitted file can load a pickled model."""
    (tmp_path / "shipped.py").write_text(branches.text, "utf-8")
    write = (
        "import pickle, torch, shipped; torch.manual_seed(0);"
        "m = shipped.ModelNew(*shipped.get_init_inputs()).eval();"
        "pickle.dump(m, open('m.pkl', 'wb'))"
    )
    read = (
        "import pickle, torch; m = pickle.load(open('m.pkl', 'rb'));"
        "torch.manual_seed(1); print(float(m(torch.randn(6, 20), torch.randn(6, 32))['sum'].sum()))"
    )
    for script in (write, read):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
    torch.manual_seed(0)
    old = branches.original.Model(*branches.original.get_init_inputs()).eval()
    torch.manual_seed(1)
    expected = old(torch.randn(6, 20), torch.randn(6, 32))["sum"].sum().item()
    assert float(done.stdout) == pytest.approx(expected, abs=1e-4)


def test_class_from_a_cell_says_that_it_cannot_be_pickled(gelu: Pair) -> None:
    model = run_in({"__name__": "nowhere"}, gelu.text)["ModelNew"]()
    with pytest.raises((pickle.PicklingError, ModuleNotFoundError)):
        pickle.dumps(model)


def test_as_a_script(linear: Pair, tmp_path: Path) -> None:
    path = tmp_path / "linear_new.py"
    path.write_text(linear.text, "utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300)
    # PyTorch for CUDA says so where there is nvcc and no GPU.
    said = [line for line in done.stderr.splitlines() if "No CUDA runtime is found" not in line]
    assert (done.returncode, done.stdout, said) == (0, "", [])


# What public checkers of generated kernels refuse outside comments, in the text that is ours.
REFUSED = (
    r"\btry\s*:",
    r"\bexcept\b",
    r"\bpass\b",
    r"\bthreading\b",
    r"\bThread\b",
    r"\bconcurrent\b",
    r"\bmultiprocessing\b",
)


def _ours(text: str, source: str) -> str:
    """The emitted text without the original's source and without comments."""
    assert source in text
    text = text.replace(source, "")
    return re.sub(r"(#|//).*", "", text)


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("name", sorted(SOURCES))
def test_public_static_checks(name: str, target: str) -> None:
    text = _ours(emitted_text(name, target), SOURCES[name])
    assert [pattern for pattern in REFUSED if re.search(pattern, text)] == []
    assert "load_inline" in text
    assert ("__global__" in text) == (target == "sm_90a")


def test_needs_nothing_of_opweld(pair: Pair) -> None:
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(pair.text))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - set(sys.stdlib_module_names) == {"torch"}


@pytest.mark.slow
def test_same_text_in_another_process() -> None:
    texts = []
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        script = "from tests.behaviour.emitted import emitted_text; print(emitted_text('branches'))"
        paths = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]
        environ["PYTHONPATH"] = os.pathsep.join(paths)
        done = subprocess.run(
            [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert texts[0] == texts[1] == emitted_text("branches") + "\n"
