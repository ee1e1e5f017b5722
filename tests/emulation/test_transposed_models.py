"""Models of transposed convolutions: emitted files, whose kernels run on the CPU under emulation,
beside float64.
"""

from __future__ import annotations

import pytest
from tests.behaviour.emitted import Pair
from tests.emulation.convolution_models import (
    convolution_pair,
    quick_first,
    require_kernels,
    require_near_float64,
    source,
)

MODELS = {
    "decoder": source(
        """self.up = nn.ConvTranspose2d(40, 36, 4, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(36)
        self.skip = nn.Conv2d(36, 36, 3, padding=1)
        self.last = nn.ConvTranspose2d(36, 33, (3, 2), (2, 3), (1, 0), (1, 0), bias=False)""",
        """y = torch.relu(self.norm(self.up(x)))
        y = torch.tanh(self.skip(y)) + y
        z = torch.sigmoid(self.last(y))
        return z, y.mean((2, 3)), z.amax(1)""",
        "2, 40, 5, 4",
    ),
    "vocoder": source(
        """self.up = nn.ConvTranspose1d(34, 33, 16, stride=8, padding=4)
        self.each = nn.ConvTranspose1d(33, 35, 3, 2, 1, 1, dilation=2)""",
        """y = F.leaky_relu(self.up(x), 0.1)
        return torch.tanh(self.each(y)), y.sum(1)""",
        "2, 34, 9",
    ),
    "volume": source(
        """self.up = nn.ConvTranspose3d(33, 32, 2, stride=2)
        self.last = nn.ConvTranspose3d(32, 36, (1, 3, 3), (1, 2, 2), (0, 1, 1), (0, 1, 1))""",
        """y = F.silu(self.up(x))
        return F.avg_pool3d(y, 2), torch.relu(self.last(y)) * 2""",
        "2, 33, 2, 3, 2",
    ),
    "same pixels": source(
        "self.conv = nn.ConvTranspose2d(32, 32, 3, padding=1)",
        """y = torch.relu(self.conv(x))
        return y.mean((2, 3)), y.sum(1)""",
        "3, 32, 6, 7",
    ),
}
NUM_CONVOLUTIONS = {"decoder": 3, "vocoder": 2, "volume": 2, "same pixels": 1}


@pytest.fixture(autouse=True)
def multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "4")


@pytest.fixture(scope="module", params=quick_first(MODELS, ("vocoder", "volume", "same pixels")))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name = request.param
    return convolution_pair(name, MODELS[name], tmp_path_factory.mktemp(name))


def test_each_convolution_is_a_kernel(pair: Pair) -> None:
    require_kernels(pair, NUM_CONVOLUTIONS[pair.name])


@pytest.mark.parametrize("batch", [2, 1])
def test_results_are_near_float64(pair: Pair, batch: int) -> None:
    require_near_float64(pair, batch, NUM_CONVOLUTIONS[pair.name])
