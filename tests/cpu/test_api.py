"""`opweld.optimize(module, inputs)`: what it gives runs our kernels on the shared parameters."""

from __future__ import annotations

import html
import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import profile

import opweld
from opweld.errors import CaptureError, UnsupportedPrecision, UserError
from opweld.interface.held import Held
from opweld.model_file import load, make_inputs, make_model

SOURCE = str(Path(__file__).parents[2] / "src")


class Gate(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x) * 2.0


class Gated(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.project = nn.Linear(size, size)
        self.gate = Gate()

    def forward(self, x: torch.Tensor, shift: float | torch.Tensor = 1.0) -> torch.Tensor:
        return torch.tanh(self.gate(self.project(x)) + shift)


def fused_ops(module: nn.Module, *args: object, **kwargs: object) -> list[str]:
    """The names of our ops that one call runs."""
    with profile() as record, torch.no_grad():
        module(*args, **kwargs)
    return [event.key for event in record.key_averages() if event.key.startswith("opweld_")]


def run_script(folder: Path, text: str) -> str:
    """A script of its own, where the classes live in `__main__`; returns what it prints."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    environ = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [sys.executable, path], env=environ, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SCRIPT = """
import torch, opweld
from torch import nn
SCALE = 2.0
def doubled(x):
    return torch.sigmoid(x) * SCALE
class Gate(nn.Module):
    def forward(self, x):
        return doubled(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.gate = nn.Linear(16, 16), Gate()
    def forward(self, x):
        return torch.tanh(self.gate(self.project(x)))
net, x = Net(), torch.randn(8, 16)
result = opweld.optimize(net, x, check={check}, time_limit_s=200)
with torch.profiler.profile() as record, torch.no_grad():
    result.module(x)
print(any(event.key.startswith("opweld_") for event in record.key_averages()))
print(torch.allclose(result.module(x), net(x), rtol=1e-6, atol=1e-7))
net.project.weight.data.mul_(3.0)
print(torch.allclose(result.module(x), net(x), rtol=1e-6, atol=1e-7))
print(isinstance(result.module, Net))
print(result.verdict and result.verdict.passed, result.timing is not None)
result.save("{folder}/saved.py")
"""


@pytest.mark.slow
def test_classes_of_a_script_are_fused_and_judged(tmp_path: Path) -> None:
    said = run_script(tmp_path, SCRIPT.format(check=True, folder=tmp_path))
    assert said.split() == ["True", "True", "True", "True", "True", "True"]
    # the saved file stands alone, in a process that has never seen the script
    (tmp_path / "script.py").unlink()
    text = f"""
        import importlib.util, sys, torch
        sys.modules["opweld"] = None
        spec = importlib.util.spec_from_file_location("saved", {str(tmp_path / "saved.py")!r})
        saved = importlib.util.module_from_spec(spec); sys.modules["saved"] = saved
        spec.loader.exec_module(saved)
        torch.manual_seed(0); new = saved.ModelNew()
        torch.manual_seed(0); old = saved.ModelNew.__bases__[0]()
        x = torch.randn(4, 16)
        print(torch.allclose(new(x), old(x), rtol=1e-6, atol=1e-7))
    """
    assert run_script(tmp_path, text) == "True\n"


def test_what_stands_for_a_module_is_a_model_file(tmp_path: Path) -> None:
    module, x = Gated(4), torch.randn(2, 4)
    path, _ = Held(str(tmp_path), None, (), ()).write(module, [x])
    stands = load(path, "stands_for_a_module")
    model = make_model(path, stands, nn.Module)
    (given,) = make_inputs(path, stands)
    assert isinstance(model, Gated) and torch.equal(model(given), module(x))


def test_an_importable_class_with_keywords() -> None:
    torch.manual_seed(0)
    module, x, shift = Gated(32), torch.randn(5, 32), torch.randn(32)
    result = opweld.optimize(module, x, kwargs={"shift": shift}, check=False)
    assert isinstance(result.module, Gated)
    assert result.module.project.weight is module.project.weight
    assert len(fused_ops(result.module, x, shift=shift)) == 1
    torch.testing.assert_close(result.module(x, shift=shift), module(x, shift=shift))
    torch.testing.assert_close(result.module(x[:3], shift=shift), module(x[:3], shift=shift))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.GELU(), (4, 8)),
        (nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Tanh()), (4, 8)),
        (nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Sigmoid(), nn.Tanh())), (4, 8)),
        pytest.param(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(),
            (2, 5, 16),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_modules_of_pytorch_itself(module: nn.Module, shape: tuple[int, ...]) -> None:
    result = opweld.optimize(module, torch.randn(shape), check=False)
    x = torch.randn(3, *shape[1:], requires_grad=True)
    assert fused_ops(result.module, x)
    torch.testing.assert_close(result.module(x), module(x))


def test_what_the_result_shows(tmp_path: Path) -> None:
    result = opweld.optimize(Gated(32), torch.randn(5, 32), check=False)
    row = next(row for row in result.plan if row.kind == "pointwise")
    assert {"sigmoid", "mul", "tanh"} <= set(row.ops)
    assert "1 kernel, 1 call left to PyTorch" in repr(result) and "not verified" in repr(result)
    shown = html.unescape(result._repr_html_())
    assert "not verified" in shown and f'title="{row.name}"' in shown
    assert "<h1>Gated</h1>" in shown and str(Path.cwd()) not in shown
    page = result.report(tmp_path / "page.html").read_text("utf-8")
    assert row.name in page and page.startswith("<!DOCTYPE html>")
    assert "Not verified" in result.text.split('"""')[1]
    assert (result.verdict, result.timing) == (None, None)


def test_gradients_are_kernels_where_they_are_asked_for() -> None:
    x = torch.randn(64, 16)
    texts = [
        opweld.optimize(Gated(16), x, check=False, training=training).text
        for training in (False, True)
    ]
    assert ["_by_kernels(" in text for text in texts] == [False, True]


def test_the_module_is_left_as_it_is() -> None:
    module = Gated(16).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    opweld.optimize(module, torch.randn(4, 16), check=False)
    assert module.training and type(module) is Gated
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(UserError, match="optimize takes a torch.nn.Module, not a builtin"):
        opweld.optimize(torch.tanh, torch.ones(2))
    with pytest.raises(UnsupportedPrecision):
        opweld.optimize(Gated(4), torch.ones(1, 4), precision="tf32")


def test_a_class_inside_a_function_is_refused() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x) * 2.0

    with pytest.raises(CaptureError, match="Inner is defined inside a function"):
        opweld.optimize(Inner(), torch.ones(4), check=False)


def test_a_container_is_fused() -> None:
    module = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 8), nn.Sigmoid()).eval()
    x = torch.randn(5, 32)
    result = opweld.optimize(module, x, check=False)
    assert len(fused_ops(result.module, x)) == 2
    torch.testing.assert_close(result.module(x), module(x))
    with torch.no_grad():
        module[0].weight.mul_(2.0)
    torch.testing.assert_close(result.module(x), module(x))


def test_what_is_compiled_under_autocast_is_for_calls_without() -> None:
    module, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Softplus()).eval(), torch.randn(64, 8)
    plain = opweld.optimize(module, x, check=False)
    with torch.autocast("cpu", torch.bfloat16):
        result = opweld.optimize(module, x, check=False)
        with torch.no_grad():
            assert "autocast" in result.why(x)
    assert result.text == plain.text
    with torch.no_grad():
        torch.testing.assert_close(result.module(x), module(x))


def test_a_module_that_was_executed_and_not_registered(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.py"
    path.write_text(SCRIPT.partition("net, x = ")[0], "utf-8")
    spec = importlib.util.spec_from_file_location("not_registered", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    net, x = made.Net(), torch.randn(8, 16)
    expected = net(x)
    result = opweld.optimize(net, x, check=False)
    torch.testing.assert_close(result.module(x), expected)
    assert isinstance(result.module, made.Net) and fused_ops(result.module, x)
