"""Models of transposed convolutions: emitted files, whose kernels run on the CPU under emulation,
beside float64.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in, leaves
from tests.behaviour.products import pair_of_texts, text_of
from tests.emulation.distributions import rounded
from tests.emulation.test_convolution_models import source
from tests.gpu.emitting import all_convolutions_ours
from torch import Tensor

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


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name = request.param
    with all_convolutions_ours():
        text = text_of(name, MODELS[name], "sm90", mode="eval")
    return pair_of_texts(name, MODELS[name], text, 0, tmp_path_factory.mktemp(name))


def test_each_convolution_is_a_kernel(pair: Pair) -> None:
    forward = pair.text[: pair.text.index("    def _opweld_fits")]
    forward = forward[forward.rindex("    def forward") :]
    assert forward.count("_conv") == NUM_CONVOLUTIONS[pair.name] and "functional" not in forward


FUNCTIONS = (
    *(torch.conv2d, torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
)


class Rounded(torch.overrides.TorchFunctionMode):
    """Convolutions see operands of 11 bits."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if function in FUNCTIONS:
            x, weight, *rest = args
            args = (*(self.of_11_bits(each) for each in (x, weight)), *rest)
        return function(*args, **(kwargs or {}))

    @staticmethod
    def of_11_bits(x: Tensor) -> Tensor:
        return torch.from_numpy(rounded(x.detach().float().numpy())).double()


@pytest.mark.parametrize("batch", [2, 1])
def test_results_are_near_float64(pair: Pair, batch: int) -> None:
    """And lie as eager's do."""
    original, new = pair.models()
    (x,) = pair.inputs(batch)
    with torch.no_grad():
        found, eager = leaves(new(x)), leaves(original(x))
        assert kernels_in(lambda: new(x)) >= NUM_CONVOLUTIONS[pair.name]
        with Rounded():
            exact = leaves(original.double()(x.double()))
    assert [each.stride() for each in found] == [each.stride() for each in eager]
    for mine, right in zip(found, exact, strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=1e-4)
