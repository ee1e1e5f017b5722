"""Files with kernels for gradients learn as the original does, by the judge's training level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.behaviour import stepping
from tests.behaviour.emitted import CountCalls
from tests.judge.training import pair_of_files, train

from opweld.driver import compile_file
from opweld.options import Options

HEAD = "import math\nimport torch\nfrom torch import nn\n\n\n"
GELU = """class Model(nn.Module):
    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


def get_inputs():
    return [torch.randn(8, 40)]


def get_init_inputs():
    return []
"""
SWISH = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(24, 16)

    def forward(self, x):
        y = self.project(x)
        y = y * torch.sigmoid(y)
        y = torch.clamp(y / 2.0, min=-1.0, max=1.0)
        return torch.clamp(torch.tanh(y), min=-1.0, max=1.0)


def get_inputs():
    return [torch.rand(12, 24)]


def get_init_inputs():
    return []
"""
SOURCES = {"gelu": HEAD + GELU, "linear and swish": HEAD + SWISH, "a layer norm": stepping.SOURCE}


@pytest.mark.parametrize("name", SOURCES)
def test_emitted_files_learn_as_eager_does(name: str, build_folder: Any, tmp_path: Path) -> None:
    model, new = tmp_path / "model.py", tmp_path / "new.py"
    model.write_text(SOURCES[name], "utf-8")
    text = compile_file(model, Options(target="cpu", check=False, training=True)).text
    always = "if hasattr(ModelNew._opweld, 'host_bound'):\n    "
    always += "ModelNew._opweld.host_bound = lambda *_: False\n"
    new.write_text(f"{text}\n{always}", "utf-8")
    pair = pair_of_files(model, new)
    with CountCalls() as count:
        found = train(pair, 30)
    assert found.check.passed and found.curves is not None, found.check.detail
    assert found.curves.last_loss < found.curves.first_loss
    assert len([name for name, _ in count.ours if "_of_k" in str(name)]) >= 5 * 30
