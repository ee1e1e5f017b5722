"""Models of convolutions of one axis of space and more: emitted files, whose kernels run on the CPU
under emulation, beside float64.
"""

from __future__ import annotations

import pytest
import torch
from tests.behaviour.emitted import Pair, leaves
from tests.emulation.convolution_models import (
    convolution_pair,
    quick_first,
    require_kernels,
    require_near_float64,
    source,
)

MODELS = {
    "gate": source(
        "self.conv = nn.Conv1d(34, 68, 3, padding=4, dilation=4)",
        """filters, gates = self.conv(x).chunk(2, 1)
        return torch.tanh(filters) * torch.sigmoid(gates) + x""",
        "2, 34, 70",
    ),
    "line": source(
        """self.wide = nn.Conv1d(33, 80, 4, stride=3, padding=2, bias=False)
        self.norm = nn.BatchNorm1d(80)
        self.each = nn.Conv1d(80, 80, 9, padding="same", groups=80)
        self.last = nn.Conv1d(80, 36, 1)""",
        """y = F.silu(self.norm(self.wide(x)))
        y = y + F.gelu(self.each(y))
        z = F.max_pool1d(torch.relu(self.last(y)), 2)
        return z, (y.transpose(1, 2) * 2).mean(2), z.amax(2), torch.softmax(z, 1).sum(1)""",
        "3, 33, 50",
    ),
    "volume": source(
        """self.down = nn.Conv3d(32, 40, 3, stride=(1, 2, 2), padding=1)
        self.norm = nn.BatchNorm3d(40)
        self.each = nn.Conv3d(40, 40, (1, 3, 2), padding=(0, 1, 0), groups=40)
        self.last = nn.Conv3d(40, 33, 2, dilation=(1, 1, 2), padding="same")""",
        """y = torch.relu(self.norm(self.down(x)))
        z = F.hardtanh(self.last(y) + y[:, :33])
        return F.avg_pool3d(z, 2), z.mean((2, 3, 4)), torch.tanh(self.each(y))""",
        "2, 32, 4, 9, 8",
    ),
    "plane": source(
        "self.conv = nn.Conv2d(32, 36, 3)",
        """y = torch.relu(self.conv(x))
        return F.max_pool2d(y, 2), y.amax(1)""",
        "2, 32, 8, 9",
    ),
    "residual": source(
        "self.conv = nn.Conv2d(36, 36, 3, padding=1)",
        "return F.gelu(self.conv(x) + x)",
        "2, 36, 7, 9",
    ),
    "bottleneck": source(
        """self.a, self.na = nn.Conv2d(72, 40, 1, bias=False), nn.BatchNorm2d(40)
        self.b, self.nb = nn.Conv2d(40, 72, 1), nn.BatchNorm2d(72)
        self.c = nn.Conv2d(72, 36, 1)
        _ = [(nn.init.uniform_(each.running_mean), nn.init.uniform_(each.running_var, 0.5, 2.0))
        for each in (self.na, self.nb)]
        _ = [nn.init.uniform_(p) for each in (self.na, self.nb) for p in each.parameters()]""",
        """y = torch.relu(self.na(self.a(x)))
        y = torch.relu(self.nb(self.b(y)) + x)
        return self.c(y) * torch.sigmoid(y.mean((2, 3), keepdim=True))[:, :36]""",
        "2, 72, 6, 10",
    ),
    "line of one tap": source(
        "self.a, self.b = nn.Conv1d(36, 132, 1), nn.Conv1d(132, 36, 1)",
        "return self.b(F.gelu(self.a(x))) + x",
        "3, 36, 68",
    ),
    "paddings": source(
        """self.wide = nn.Conv2d(33, 40, 3, stride=2, padding=(1, 0))
        self.each = nn.Conv2d(40, 40, 3, groups=40)
        self.last = nn.Conv2d(40, 36, (1, 2), dilation=2)""",
        """y = torch.relu(self.wide(F.pad(x, (0, 1, 1, 2))))
        y = F.silu(self.each(F.pad(y, (2, 0, 1, 1))))
        return torch.tanh(self.last(F.pad(y, (2, 0)))), y.mean((2, 3))""",
        "2, 33, 8, 11",
    ),
    "causal": source(
        "self.stem, self.conv = nn.Conv1d(3, 64, 5), nn.Conv1d(64, 66, 3, dilation=4)",
        """y = torch.relu(self.stem(F.pad(x, (4, 0))))
        return torch.tanh(self.conv(F.pad(y, (8, 0)))) + self.conv.bias[:, None]""",
        "2, 3, 70",
    ),
}
NUM_CONVOLUTIONS = {"gate": 1, "line": 3, "volume": 3, "plane": 1, "residual": 1}
NUM_CONVOLUTIONS |= {"paddings": 3, "causal": 2, "bottleneck": 3, "line of one tap": 2}


QUICK = ("gate", "line", "plane", "residual", "paddings", "causal", "bottleneck", "line of one tap")


@pytest.fixture(autouse=True)
def multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "4")


@pytest.fixture(scope="module", params=quick_first(MODELS, QUICK))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name = request.param
    return convolution_pair(name, MODELS[name], tmp_path_factory.mktemp(name))


def test_each_convolution_is_a_kernel(pair: Pair) -> None:
    require_kernels(pair, NUM_CONVOLUTIONS[pair.name])


@pytest.mark.parametrize("batch", [3, 1])
def test_results_are_near_float64(pair: Pair, batch: int) -> None:
    require_near_float64(pair, batch, NUM_CONVOLUTIONS[pair.name])


@pytest.mark.parametrize("pair", ["bottleneck", "line of one tap"], indirect=True)
def test_those_of_one_tap_are_not_packed(pair: Pair) -> None:
    assert "OneTapTiles" in pair.text and "WindowTiles" not in pair.text


@pytest.mark.parametrize("pair", ["plane", "residual", "bottleneck"], indirect=True)
def test_images_lie_as_eagers(pair: Pair) -> None:
    original, new = pair.models()
    (x,) = pair.inputs(3)
    x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        found, eager = leaves(new(x)), leaves(original(x))
    assert [each.stride() for each in found] == [each.stride() for each in eager]
