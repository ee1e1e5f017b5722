"""Convolutions that are kernels of ours: what their emitted files ask of torch's flags, and say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.behaviour.emitted import load_file
from tests.behaviour.test_products import require_near
from tests.gpu.emitting import all_convolutions_ours

from opweld.driver import compile_file
from opweld.options import Options

SOURCE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(40, 48, 3, padding=1)
        self.b = nn.Conv2d(48, 48, 3, padding=1)
        self.c = nn.Conv2d(48, 70, 1, stride=2, bias=False)

    def forward(self, x):
        y = torch.relu(self.a(x))
        y = torch.relu(self.b(y) + y)
        return torch.tanh(self.c(y)).mean((2, 3))


def get_inputs():
    return [torch.randn(2, 40, 9, 8)]


def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def flag_as_before() -> Iterator[None]:
    with all_convolutions_ours():
        yield


def emitted(folder: Path, target: str = "sm_90a", flag: bool = True) -> str:
    path = folder / "three.py"
    path.write_text(SOURCE, "utf-8")
    with torch.backends.cudnn.flags(allow_tf32=flag):
        return compile_file(path, Options(target=target, check=False)).text


def guard_of(text: str) -> str:
    return text[text.index('"""Whether the kernels were made') :].partition("def ")[0]


def test_kernels_of_less_precision_run_where_flags_allow_them(tmp_path: Path) -> None:
    text = emitted(tmp_path)
    assert "op::WindowTiles<op::Tf32, 2, 64>" in text and "op::Faithful" not in text
    assert "_kernels.allows_tf32_convolutions()" in guard_of(text)
    assert "_kernels.allows_tf32()" not in text
    assert len(re.findall(r"^def _allows_tf32_convolutions\(\):", text, re.MULTILINE)) == 1
    assert len(re.findall(r"_kernels\.k\d_conv2d\w*\(", text)) == 3
    refused = text[text.index("if self._opweld_fits(x):") :].partition("def ")[0]
    assert refused.rstrip().endswith("return super().forward(x)"), "the library's, elsewhere"


def test_those_as_exact_as_float32_run_whatever_flags_say(tmp_path: Path) -> None:
    text = emitted(tmp_path, flag=False)
    assert "op::WindowTiles<op::Faithful, 2, 64>" in text and "op::Tf32" not in text
    assert "allows_tf32_convolutions" not in text


def test_no_other_file_asks(tmp_path: Path) -> None:
    assert "allows_tf32_convolutions" not in emitted(tmp_path, "cpu")
    assert "allows_tf32_convolutions" not in emitted(tmp_path, "sm_80")


def test_without_the_device_the_original_runs(tmp_path: Path) -> None:
    text = emitted(tmp_path)
    module = load_file(tmp_path / "three_new.py", text)
    torch.manual_seed(0)
    new = module.ModelNew().eval()
    x = torch.randn(2, 40, 9, 8)
    with torch.no_grad():
        found = new(x)
        exact = new.double()(x.double())
    require_near(found, exact)
