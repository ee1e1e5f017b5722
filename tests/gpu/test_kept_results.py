"""On the device: sums of a weight's rows are kept, and follow the weight."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gpu.recording import recorded
from tests.gpu.sanitizing import KERNELS_ALONE, needs_sanitizer, require_nothing_found
from tests.models.emitted import Emitted, emit_module
from torch import nn

from opweld.driver import compile_file
from opweld.options import Options

pytestmark = pytest.mark.gpu

WIDTH, FEATURES = 1024, 2048


class SumOfFeatures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, FEATURES)

    def forward(self, x):
        return self.project(x).sum(dim=1, keepdim=True)


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    torch.manual_seed(2)
    x = torch.randn(64, WIDTH)
    folder = tmp_path_factory.mktemp("kept")
    made = emit_module(SumOfFeatures().eval(), ((x,), {}), folder, target="cuda")
    assert made.compiled.rewritten
    return made


def pair(emitted: Emitted) -> tuple[Any, nn.Module]:
    old = copy.deepcopy(emitted.original)
    return type(emitted.new).adopt(old), old


def check(new: Any, rows: int = 64) -> None:
    x = torch.randn(rows, WIDTH, device="cuda")
    with torch.no_grad():
        found = new(x)
    weight, bias = new.project.weight.double(), new.project.bias.double()
    exact = (x.double() @ weight.T + bias).sum(1, keepdim=True)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-3)


def test_results_follow_each_change_of_the_weight(emitted: Emitted) -> None:
    new, _ = pair(emitted)
    weight = new.project.weight
    for _ in range(2):
        check(new)
    with torch.no_grad():
        weight.mul_(-3)
    check(new)
    weight.data.add_(1)  # no version counts it
    check(new)
    new.load_state_dict({k: torch.randn_like(v) for k, v in new.state_dict().items()})
    check(new)
    new.project.weight = nn.Parameter(torch.randn_like(weight))
    check(new)
    for optimizer in (
        torch.optim.SGD(new.parameters(), lr=0.1),
        torch.optim.AdamW(new.parameters(), lr=0.1, fused=True),
    ):
        for _ in range(3):
            optimizer.zero_grad()
            new(torch.randn(4096, WIDTH, device="cuda")).square().mean().backward()
            optimizer.step()
            check(new)


def test_results_are_the_callers_own(emitted: Emitted) -> None:
    new, _ = pair(emitted)
    x = torch.randn(64, WIDTH, device="cuda")
    with torch.no_grad():
        first = new(x)
        kept = first.clone()
        first.zero_()
        assert torch.equal(new(x), kept)


def test_calls_on_several_streams_are_equal(emitted: Emitted) -> None:
    new, _ = pair(emitted)
    x = torch.randn(64, WIDTH, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(4)]
    with torch.no_grad():
        for turn in range(50):
            new.project.weight.mul_(-1 if turn % 10 == 0 else 1)
            wanted = new(x).clone()
            torch.cuda.synchronize()
            found = []
            for stream in streams:
                with torch.cuda.stream(stream):
                    found.append(new(x))
            torch.cuda.synchronize()
            assert all(torch.equal(each, wanted) for each in found)


def test_a_recorded_graph_follows_the_weight(emitted: Emitted) -> None:
    new, _ = pair(emitted)
    x = torch.randn(64, WIDTH, device="cuda")
    with torch.no_grad():
        graph, shown = recorded(partial(new, x))
        for scale in (1.0, 2.0, -5.0):
            new.project.weight.mul_(scale)
            graph.replay()
            torch.cuda.synchronize()
            exact = (x.double() @ new.project.weight.double().T).sum(1, keepdim=True)
            exact += new.project.bias.double().sum()
            torch.testing.assert_close(shown.double(), exact, rtol=1e-4, atol=1e-2)


def test_200_calls_are_equal(emitted: Emitted) -> None:
    new, _ = pair(emitted)
    x = torch.randn(64, WIDTH, device="cuda")
    with torch.no_grad():
        first = new(x).clone()
        assert all(torch.equal(new(x), first) for _ in range(200))


@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_finds_nothing(tool: str, tmp_path: Path) -> None:
    made = tmp_path / "kept_new.py"
    model = tmp_path / "kept.py"
    model.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.project = nn.Linear(1024, 2048)\n\n"
        "    def forward(self, x):\n        return self.project(x).sum(1, keepdim=True)\n\n\n"
        "def get_inputs():\n    return [torch.randn(64, 1024)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    account = compile_file(model, Options(target="cuda", check=False))
    made.write_text(account.text)
    calls = f"""{KERNELS_ALONE}
net = emitted.ModelNew().cuda()
with torch.no_grad():
    for turn in range(4):
        net(torch.randn(64, 1024, device="cuda"))
        net.project.weight.mul_(1.5 if turn % 2 else 1.0)
torch.cuda.synchronize()
"""
    require_nothing_found(tool, calls, made)
