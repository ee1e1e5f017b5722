"""Steps of training that are recorded and made anew from C++: gradients are those of Python, and
steps are replayed only where nothing could tell the difference.
"""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.replayed_steps import (
    SOURCE,
    STEPS,
    by_python_s,
    check_equal,
    gradients,
    inputs,
    model,
    ready,
    weighted,
)
from tests.behaviour.replaying import Watch, by_python, compiled
from torch import Tensor
from torch.utils.cpp_extension import include_paths

from opweld.driver import compile_file
from opweld.emission.support import ABI_FLAG
from opweld.model_file import import_file
from opweld.options import Options


@pytest.fixture(scope="module")
def file(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("replay"), SOURCE, **STEPS)


@pytest.mark.parametrize("asks", [False, True])
def test_the_third_step_is_replayed_with_equal_bits(file: ModuleType, asks: bool) -> None:
    net = model(file)
    for seed in range(5):
        given = inputs(seed)
        given[1].requires_grad_(asks)
        with Watch(file) as ways:
            found = gradients(net, given)
        assert ways == [["python", "recorded", "replayed"][min(seed, 2)]]
        check_equal(found, by_python_s(file, net, given))
        assert found["unused"] is None and (found["x"] is not None) is asks


def test_an_input_that_comes_to_ask_is_recorded_for_itself(file: ModuleType) -> None:
    net, given = ready(file), inputs()
    given[1].requires_grad_()
    for way in ("python", "recorded", "replayed"):
        with Watch(file) as ways:
            found = gradients(net, given)
        assert ways == [way] and found["x"] is not None
        check_equal(found, by_python_s(file, net, given))


def test_one_node_has_the_gradients_of_all(file: ModuleType) -> None:
    scores = ready(file)(*inputs())["scores"]
    leaves = [each for each, _ in scores.grad_fn.next_functions if each is not None]
    assert all(type(each).__name__ == "AccumulateGrad" for each in leaves)
    assert len(leaves) == len([*model(file).parameters()])


def test_results_are_those_of_python(file: ModuleType) -> None:
    net = ready(file)
    found, wanted = net(*inputs(7)), by_python(file, net, *inputs(7))
    assert [*found] == [*wanted] and all(torch.equal(found[key], wanted[key]) for key in wanted)
    assert found["scores"].requires_grad and not found["of"].requires_grad


@pytest.mark.parametrize(
    "loss",
    [
        torch.sum,  # whose gradient is one number for all
        lambda scores: weighted(scores.transpose(0, 2)),
        lambda scores: weighted(scores[1, 2:4]),
        lambda scores: scores.square().mean() + weighted(scores),
    ],
)
def test_gradients_of_any_layout(file: ModuleType, loss: Callable[[Tensor], Tensor]) -> None:
    net = ready(file)
    with Watch(file) as ways:
        found = gradients(net, inputs(), loss)
    assert ways == ["replayed"]
    for name, wanted in by_python_s(file, net, inputs(), loss).items():
        torch.testing.assert_close(found[name], wanted)


def test_frozen_weights_have_none(file: ModuleType) -> None:
    net = ready(file)
    net.blocks[1].requires_grad_(False)
    for place in range(3):
        with Watch(file) as ways:
            found = gradients(net, inputs())
        assert ways == [["python", "recorded", "replayed"][place]]
        check_equal(found, by_python_s(file, net, inputs()))
        assert found["blocks.1.up.weight"] is None and found["blocks.0.up.weight"] is not None


def test_optimizer_steps_are_python_s(file: ModuleType) -> None:
    nets = [ready(file), copy.deepcopy(model(file))]
    optimizers = [torch.optim.AdamW(net.parameters(), lr=0.05) for net in nets]
    for seed in range(12):
        for by, net, optimizer in zip((gradients, by_python_s), nets, optimizers, strict=True):
            by(*([file] if by is by_python_s else []), net, inputs(seed))
            optimizer.step()
    for found, wanted in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(found, wanted)


def test_gradients_are_accumulated_over_forwards(file: ModuleType) -> None:
    net, apart = ready(file), []
    for seed in (1, 2):
        apart.append(gradients(net, inputs(seed)))
    net.zero_grad(set_to_none=True)
    results = [net(*inputs(seed))["scores"] for seed in (1, 2)]  # two graphs at once
    for scores in reversed(results):
        weighted(scores).backward()
    for name, weight in net.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(weight.grad, apart[0][name] + apart[1][name])


def test_without_gradients_calls_are_recorded_for_themselves(file: ModuleType) -> None:
    net = ready(file)
    with torch.no_grad(), Watch(file) as ways:
        results = [net(*inputs())["scores"] for _ in range(3)]
    assert ways == ["python", "recorded", "replayed"]
    assert not results[-1].requires_grad and torch.equal(results[-1], net(*inputs())["scores"])
    frozen = model(file).requires_grad_(False)
    with Watch(file) as ways:
        results = [frozen(*inputs())["scores"] for _ in range(3)]
    assert ways[-1] == "replayed" and not results[-1].requires_grad


def test_few_elements_are_replayed_as_well(file: ModuleType, tmp_path: Path) -> None:
    """The original runs until then, as calls of single kernels are host-bound."""
    path = tmp_path / "few.py"
    path.write_text(Path(str(file.__file__)).read_text("utf-8"), "utf-8")
    few = import_file(path, "few")
    assert few.ModelNew._opweld.host_bound(net := model(few), *inputs())
    nodes = [type(net(*inputs())["scores"].grad_fn).__name__ for _ in range(3)]
    assert nodes[0] == "MulBackward0" and nodes[2] == "StepBackward"
    assert few.ModelNew._opweld.host_bound(net, *inputs()), "as it was"


def test_a_forward_that_fails_falls_back_to_python(file: ModuleType) -> None:
    net = ready(file)
    kept = file.ModelNew._opweld.holds.kept(net)
    (key,) = (key for key, each in kept.items() if callable(each))

    def fails(*_: Any) -> None:
        raise RuntimeError("no memory")

    wanted = gradients(net, inputs())
    kept[key] = fails
    with Watch(file) as ways:
        check_equal(gradients(net, inputs()), wanted)
    assert ways == ["python"]


def test_none_for_a_tensor_is_one_that_is_undefined(file: ModuleType) -> None:
    """As attention's backward has it on a GPU."""
    library = torch.library.Library("opweld_test_undefined", "DEF")
    library.define("seen(Tensor x, Tensor y) -> Tensor")
    library.impl("seen", lambda x, y: y + 1 if x is None else y, "CompositeExplicitAutograd")
    op, tensor, undefined = file.ModelNew._opweld.op, 0, 5
    code = [0, 0, 1, 2, undefined, tensor, 0, 0, 1]  # one call of it, whose result is returned
    number = op("opweld_prepare")([], code, "opweld_test_undefined::seen  ", 1, 1)
    (found,) = op("opweld_replay")([torch.zeros(2)], number)
    op("opweld_forget")(number)
    assert torch.equal(found, torch.ones(2))


TABLED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.LayerNorm(64) for _ in range(3))

    def forward(self, x):
        y = torch.tanh(self.first(x))
        z = self.second(y.transpose(0, 1)).transpose(0, 1)
        return torch.softmax(self.third(y + z.cumsum(0)), -1) + y


def get_inputs():
    return [torch.randn(32, 8, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_host_code_of_a_gpu_compiles_without_products(tmp_path: Path) -> None:
    """It has less of what the others use: these kernels are all called by one C signature."""
    path = tmp_path / "tabled.py"
    path.write_text(TABLED, "utf-8")
    options = Options(target="sm_90a", mode="training", training=True, check=False)
    text = compile_file(path, options).text
    parts = [re.search(rf'^_{name} = r"""(.*?)"""', text, re.M | re.S) for name in ("HOST", "MAIN")]
    source = "".join(part[1] for part in parts if part)
    assert "host::replay_backward" in source and "contraction" not in source
    (tmp_path / "main.cpp").write_text(f"#define TORCH_EXTENSION_NAME x\n{source}", "utf-8")
    flags = ["-std=c++20", "-fsyntax-only", "-DUSE_CUDA", ABI_FLAG]
    include = [f"-I{each}" for each in include_paths()]
    done = subprocess.run(
        ["g++", *flags, *include, "main.cpp"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


TWO = SOURCE.replace('"of": (y.detach() > 0)', '"of": y * 2')
INPUT = SOURCE.replace('"of": (y.detach() > 0)', '"of": x')
SAME = SOURCE.replace("return {", "z = torch.tanh(y)\n        return {").replace(
    'torch.tanh(F.linear(y, self.table.weight)) * 2, "of": (y.detach() > 0)',
    'z, "of": z.detach()',
)


@pytest.mark.parametrize("source", [TWO, INPUT, SAME], ids=["two", "input", "same"])
def test_results_that_one_node_cannot_have_are_python_s(
    source: str, build_folder: Path, tmp_path: Path
) -> None:
    """Of two with gradients one may have none; others are somebody's memory."""
    file = compiled(tmp_path, source, **STEPS)
    net = model(file)
    for way in ("python", "recorded", "python", "python"):
        with Watch(file) as ways:
            found = gradients(net, inputs())
        assert ways == [way]
        check_equal(found, by_python_s(file, net, inputs()))
