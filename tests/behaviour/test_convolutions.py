"""Convolutions of the library whose bias a kernel of ours adds: emitted files against float64."""

from __future__ import annotations

import inspect
import re
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in, leaves
from tests.behaviour.products import pair_of_texts, text_of
from tests.behaviour.test_products import gradients, require_near
from tests.unit.plan.convolving import nothing_given_back
from torch import nn

from opweld.driver import compile_module
from opweld.ir.original import Original
from opweld.options import Options

SOURCE = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 8, 3, padding="same", padding_mode="circular")
        self.across = nn.Conv2d(8, 4, 1, groups=2)
        self.line = nn.Conv1d(5, 8, 3, stride=2, padding=1)
        self.volume = nn.Conv3d(2, 4, 2, dilation=2)
        self.up = nn.ConvTranspose2d(6, 5, 3, stride=2, output_padding=1)
        self.up_line = nn.ConvTranspose1d(5, 4, 3)
        self.up_volume = nn.ConvTranspose3d(2, 3, 2, bias=False)
        self.given = nn.Parameter(torch.randn(7, 6, 2, 2))
        self.shift = nn.Parameter(torch.randn(7))

    def forward(self, x, y, z):
        first = torch.tanh(self.across(torch.relu(self.conv(x))))
        second = F.silu(self.line(y)).sum(2)
        third = torch.softmax(self.volume(z), 1)
        fourth = self.up(x) * torch.sigmoid(self.up(x))
        fifth = torch.exp(-self.up_line(y).abs()), torch.relu(self.up_volume(z))
        sixth = F.gelu(F.conv2d(x, self.given, bias=self.shift, stride=2, padding="valid"))
        alone = torch.tanh(F.conv2d(x[0], self.given, self.shift)).amax((1, 2))
        return first, second, third, fourth, fifth, sixth, alone, self.line(y)


def get_inputs():
    return [torch.randn(3, 6, 7, 5), torch.randn(3, 5, 11), torch.randn(3, 2, 6, 5, 4)]


def get_init_inputs():
    return []
"""


CHAIN = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(6, 32, 3, padding=1)
        self.b = nn.Conv2d(32, 16, (3, 1), padding=(1, 0), bias=False)
        self.c = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.norm = nn.BatchNorm2d(16)
        self.shift = nn.Parameter(torch.randn(1, 16, 1, 1))
        self.rows = nn.Parameter(torch.randn(12, 1))
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        y = F.max_pool2d(torch.relu(self.a(x)), 3, 2, 1)
        y = F.silu(self.norm(self.b(y)) + y[:, 16:] * self.shift + self.rows)
        y = F.avg_pool2d(y.softmax(1), 2)
        z = torch.tanh(self.c(y))
        return self.fc(z.mean((2, 3))), z.amax(1), y.permute(0, 2, 3, 1).sum((1, 2)), y.sum()


def get_inputs():
    return [torch.randn(3, 6, 24, 20)]


def get_init_inputs():
    return []
"""
# Two convolutions with their tails, in this order, what reads the others, and a copy.
NUM_KERNELS = 10


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    text = text_of("convolutions", SOURCE)
    folder = tmp_path_factory.mktemp("convolutions")
    return pair_of_texts("convolutions", SOURCE, text, NUM_KERNELS, folder)


def exactly(original: Any, inputs: list[torch.Tensor]) -> Any:
    return original.double()(*(x.double() for x in inputs))


@pytest.mark.parametrize("batch", [3, 1])
def test_results_are_near_float64(pair: Pair, batch: int) -> None:
    original, new = pair.models()
    inputs = pair.inputs(batch)
    with torch.no_grad():
        assert kernels_in(lambda: new(*inputs)) == NUM_KERNELS
        require_near(new(*inputs), exactly(original, inputs))


def test_gradients_of_biases(pair: Pair) -> None:
    original, new = pair.models()
    inputs = pair.inputs(2)
    found = gradients(new, inputs)
    exact = gradients(original.double(), [x.double() for x in inputs])
    assert len(found) == len(exact) > 12
    require_near(found, exact)


def test_channels_last_stays(pair: Pair) -> None:
    original, new = pair.models()
    x, y, z = pair.inputs()
    inputs = [x.to(memory_format=torch.channels_last), y, z]
    with torch.no_grad():
        found, wanted = (leaves(model(*inputs)) for model in (new, original))
    assert [each.stride() for each in found] == [each.stride() for each in wanted]


def with_references(target: str) -> Options:
    """Kernels for calls without gradients alone have none."""
    return Options(target=target, training=True)


def calls_of(text: str) -> list[str]:
    return re.findall(r"= torch\.nn\.functional\.(conv\w+\(.*)", text)


def test_a_bias_is_added_by_the_kernel_that_reads_the_result(pair: Pair) -> None:
    """What no kernel reads, or runs on the CPU, keeps its own."""
    calls = calls_of(pair.text)
    with_bias = [each for each in calls if "bias" in each or "shift" in each]
    assert len(calls) == 10 and with_bias == ["conv1d(y, line_weight, line_bias, [2], [1])"]
    module = nn.Sequential(nn.Conv1d(4, 4, 3), nn.ReLU())
    call = (torch.randn(2, 4, 8),)
    original = Original("sequential.py", __name__, "Sequential", None)
    texts = {
        target: compile_module(module, call, {}, original, with_references(target)).text
        for target in ("cpu", "sm_90a")
    }
    assert ["None" in calls_of(text)[0] for text in texts.values()] == [False, True]


def test_under_autocast_the_bias_is_cast() -> None:
    module = nn.Sequential(nn.Conv1d(4, 4, 3), nn.ReLU())
    options = Options(target="sm_90a", autocast=("bfloat16",))
    original = Original("sequential.py", __name__, "Sequential", None)
    text = compile_module(module, (torch.randn(2, 4, 8),), {}, original, options).text
    assert re.search(r"\+ op::to_compute\(op::from_compute<op::bfloat16>\(\w+bias\)\)", text)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    text = text_of("chain_of_convolutions", CHAIN, mode="both")
    folder = tmp_path_factory.mktemp("chain")
    return pair_of_texts("chain_of_convolutions", CHAIN, text, 0, folder)


def test_convolutions_read_each_other_with_their_channels_last(chain: Pair) -> None:
    calls = calls_of(chain.text)
    moved = [call.endswith(".permute(0, 2, 3, 1)") for call in calls]
    assert moved == 2 * [True, True, False], "in both modes, and none that is transposed"
    copies = re.findall(r"= _kernels\.k\d+_copy\w*\(", chain.text)
    assert len(copies) == 2, "for the last: the first reads an image, which PyTorch moves"
    assert chain.text.count("torch.Tensor.contiguous(") == 2


@pytest.mark.parametrize("batch", [3, 1])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_chain_is_near_float64(chain: Pair, batch: int, layout: torch.memory_format) -> None:
    original, new = chain.models()
    (x,) = chain.inputs(batch)
    x = x.to(memory_format=layout)
    with torch.no_grad():
        before = x.clone()
        found = new(x)
        assert kernels_in(lambda: new(x)) > 3
        assert torch.equal(x, before)
        require_near(found, exactly(original, [x]))
        assert all(each.is_contiguous() for each in leaves(found))


@pytest.mark.parametrize("training", [False, True])
def test_gradients_of_a_chain(chain: Pair, training: bool) -> None:
    original, new = (model.train(training) for model in chain.models())
    inputs = chain.inputs(2)
    found = gradients(new, inputs)
    exact = gradients(original.double(), [x.double() for x in inputs])
    assert len(found) == len(exact) > 8
    for mine, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=5e-5)
    for mine, theirs in zip(new.buffers(), original.buffers(), strict=True):
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=1e-5, atol=1e-6)


class Two(nn.Module):
    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.a = nn.Conv2d(8, 8, 3, padding=1, groups=groups)
        self.b = nn.Conv2d(8, 8, 3, padding=1, groups=groups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.b(torch.relu(self.a(x))))


class Mean(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).mean((2, 3))


@pytest.mark.parametrize(
    ("module", "target", "moved"),
    [
        (Mean(), "sm_90a", 2),
        (Mean(), "cpu", 0),
        (Mean(groups=4), "sm_90a", 2),
        (Mean(groups=4), "sm_80", 0),  # which have kernels of their own in cuDNN
        (Two(), "sm_90a", 2),  # the kernel behind them moves the result
    ],
    ids=["chain", "cpu", "groups", "groups of the library", "returned"],
)
def test_what_is_moved(module: nn.Module, target: str, moved: int) -> None:
    original = Original("two.py", __name__, type(module).__name__, None)
    options = with_references(target)
    text = compile_module(module, (torch.randn(4, 8, 16, 16),), {}, original, options).text
    assert sum(".permute(0, 2, 3, 1)" in call for call in calls_of(text)) == moved


class UNet(nn.Module):
    """Of two levels: what is returned is moved by its kernel, what is joined and upsampled not."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 8), (8, 16), (24, 8))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b in sizes)
        self.last = nn.Conv2d(8, 5, 1)

    def block(self, number: int, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norms[number](self.convs[number](x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.block(0, x)
        second = self.block(1, nn.functional.max_pool2d(first, 2))
        up = nn.functional.interpolate(second, scale_factor=2)
        return torch.sigmoid(self.last(self.block(2, torch.cat((first, up.flip(3)), 1))))


class DenseNet(nn.Module):
    """Each convolution reads what is joined of all before."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (4, 12, 20)
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in sizes)
        self.convs = nn.ModuleList(nn.Conv2d(size, 8, 3, padding=1) for size in sizes)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = [self.stem(x)]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            found.append(conv(torch.relu(norm(torch.cat(found, 1)))))
        y = torch.cat(found, 1)
        return torch.relu(y), y.mean((2, 3))


NETWORKS = {"unet": UNet, "dense_net": DenseNet}


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    kind = NETWORKS[request.param]
    body = inspect.getsource(kind).replace(f"class {kind.__name__}(", "class Model(")
    source = f"""import torch
from torch import nn


{body}

def get_inputs():
    return [torch.randn(2, 3, 34, 18)]


def get_init_inputs():
    return []
"""
    text = text_of(request.param, source, mode="eval")
    return pair_of_texts(request.param, source, text, 0, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_network_is_near_float64(network: Pair, layout: torch.memory_format) -> None:
    """Its results lie as eager's do; nothing but one result is copied."""
    original, new = (model.eval() for model in network.models())
    (x,) = network.inputs(2)
    x = x.to(memory_format=layout)
    calls = calls_of(network.text)
    assert calls and all(call.endswith(".permute(0, 2, 3, 1)") for call in calls)
    with torch.no_grad():
        found, wanted = leaves(new(x)), leaves(original(x))
        assert kernels_in(lambda: new(x)) > 4
        require_near(found, leaves(exactly(original, [x])))
    assert [each.stride() for each in found] == [each.stride() for each in wanted]


class Draws(nn.Module):
    """The first draw is given a tensor whose channels are last; the others are not."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(n, 32, 3, padding=1) for n in (4, 32, 32, 32, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.convs[0](x))
        noise, scale = torch.rand_like(y), torch.randn_like(x)
        y = y + noise
        for conv in self.convs[1:]:
            y = torch.tanh(conv(y))
        return y.mean((2, 3)) * scale.amax((1, 2, 3)).unsqueeze(1)


@pytest.mark.parametrize("moved", [True, False], ids=["moved before", "given back"])
def test_numbers_are_drawn_in_the_programs_order(moved: bool) -> None:
    original = Original("draws.py", __name__, "Draws", None)
    call = (torch.randn(2, 4, 12, 12),)
    with nothing_given_back() if moved else nullcontext():
        text = compile_module(Draws(), call, {}, original, Options(target="sm_90a")).text
    forward = text[text.rindex("    def forward(self, x):") :]
    assert ("_copy(" in forward) == moved
    assert forward.index("aten.rand_like") < forward.index("aten.randn_like")
