"""Rows that are compositions, views and numbers, against PyTorch on hard values."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from tests.capturing import assert_row, exported, module_of, ops_of
from torch import nn

from opweld.ir.graph import arena_of
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.ops import Op
from opweld.simplify import simplify

HARD = torch.tensor(
    [math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-40, -1e-40, 3e38, -3e38, 1.0, -1.0, 0.5, 7.25]
    + [-2.5, 2.5, 6.0, 6.5, -6.5, 19.0, 21.0]
)
PAIRS = (HARD[:, None].expand(20, 20).contiguous(), HARD.expand(20, 20).contiguous())
POSITIVE = HARD.abs()


@pytest.mark.parametrize(
    "function",
    [
        F.relu6,
        F.hardtanh,
        lambda x: F.hardtanh(x, -0.25, 3.0),
        lambda x: torch.clamp(x, -1.0, 0.5),
        lambda x: torch.clamp(x, min=math.nan),
        lambda x: torch.clamp(x, 2.0, -2.0),
        lambda x: torch.clamp(x, torch.tensor(-1.0), x * 0.5),
        lambda x: x**2,
        lambda x: x**3.0,
        lambda x: x**0.5,
        lambda x: x**-0.5,
        lambda x: x**-1,
        lambda x: 2.0**x,
        lambda x: torch.logit(x, eps=1e-6),
        torch.logit,
        torch.sinc,
        torch.deg2rad,
        torch.angle,
        torch.isposinf,
        torch.isneginf,
        torch.nan_to_num,
        lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0),
        lambda x: F.threshold(x, 0.5, 20.0),
        lambda x: F.softshrink(x, 1.0),
        lambda x: F.hardshrink(x, 1.0),
        lambda x: F.softplus(x, 2.0, 10.0),
        lambda x: F.celu(x, 0.5),
        F.selu,
        F.softsign,
        F.logsigmoid,
        lambda x: F.rrelu(x, 0.1, 0.3),
        lambda x: x.masked_fill(x > 1, -1.0),
        lambda x: torch.where(x > 0, x, 0.0),
        lambda x: x // 2.0,
        lambda x: x % 3.0,
        lambda x: torch.fmod(x, -3.0),
        lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
        lambda x: 1 - x,
        lambda x: torch.rsub(x, 2.0, alpha=3.0),
    ],
)
def test_functions_of_one_tensor(function) -> None:
    graph = assert_row(module_of(lambda self, x: function(x)), HARD)
    assert not any(name.startswith("aten.") for name in ops_of(graph))


@pytest.mark.parametrize(
    "function",
    [
        torch.heaviside,
        torch.ldexp,
        torch.xlogy,
        torch.fmax,
        torch.maximum,
        torch.copysign,
        torch.atan2,
        torch.isclose,
        lambda x, y: torch.isclose(x, y, equal_nan=True),
        # Eager contracts these to a fused multiply-add, which shows where a product overflows.
        lambda x, y: torch.addcmul(x, y / 16, x / 16, value=0.5),
        lambda x, y: torch.addcdiv(x, y, x, value=0.5),
        lambda x, y: torch.add(x, y / 4, alpha=2),
        lambda x, y: torch.lerp(x, y, 0.25),
        lambda x, y: F.prelu(x[:, :3], y[0, -3:]),
        lambda x, y: F.glu(x),
        lambda x, y: F.mse_loss(x, y, reduction="none"),
        lambda x, y: torch.outer(x[:, 0], y[0]),
    ],
)
def test_functions_of_two_tensors(function) -> None:
    graph = assert_row(module_of(lambda self, x, y: function(x, y)), *PAIRS)
    assert not any(name.startswith("aten.") for name in ops_of(graph))


@pytest.mark.parametrize(
    "function",
    [
        lambda i, x: i / 2,
        lambda i, x: i * 0.5,
        lambda i, x: i > 1.5,
        lambda i, x: i.sqrt() + x,
        lambda i, x: (i > 2) * x,
        lambda i, x: (i > 2) + (i > 3),
        lambda i, x: i**3,
        lambda i, x: i // 4 + i % 4,
        lambda i, x: torch.where(i > 2, i, x),
        lambda i, x: i.half() * x,
        lambda i, x: (i << 3) | (i >> 1) & 5 ^ 2,
        lambda i, x: ~i + (~(i > 2)).int(),
        lambda i, x: i.clamp(0, 2.5),
        lambda i, x: x.to(torch.int32) + i.to(torch.uint8),
        lambda i, x: torch.logical_xor(i, x),
        lambda i, x: i.floor() + i.trunc() + i.sign(),
        lambda i, x: (i > 2).maximum(i < 1),
        lambda i, x: i * x.shape[0] + x.numel(),
    ],
)
def test_promotion(function) -> None:
    integers = torch.arange(12).reshape(3, 4) - 4
    graph = assert_row(module_of(lambda self, i, x: function(i, x)), integers, torch.randn(3, 4))
    assert not any(name.startswith("aten.") for name in ops_of(graph))


def _beyond(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    within = (x.clamp(-2, 1), x.clamp(max=-3), torch.where(x > -2, x, -2))
    return (*within, x < -2, x == -1, x < 300, x == 300, x + 300, x * -300)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8], ids=str)
def test_numbers_that_a_type_does_not_hold_are_wrapped(dtype: torch.dtype) -> None:
    """Also to the rules that know what values a type has."""
    x = torch.arange(256).to(dtype)
    variant = exported(module_of(lambda self, x: _beyond(x)), x)
    simplified = simplify(variant.graph, arena_of(variant.graph)).graph
    for found, wanted in zip(
        interpret_outputs(simplified, {"x": x.numpy()}), _beyond(x), strict=True
    ):
        assert torch.equal(torch.from_numpy(found), wanted)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.roll(1, 1) + x.roll((2, -1), (2, 1)) + x.roll(5, 1),
        lambda x: x.repeat(2, 1, 3) * 1.5,
        lambda x: x.tile(2) * 1.5,
        lambda x: x.repeat_interleave(2, dim=1) * 1.5,
        lambda x: F.pad(x, (1, 2), value=3.0) * 2,
        lambda x: F.pad(x, (-1, 2, 1, -2)) * 2,
        lambda x: x.flip(0, -1) * 2,
        lambda x: x.transpose(0, -1) * 2,
        lambda x: x.movedim(0, 2) * x.mT.permute(1, 0, 2).sum(),
        lambda x: x[..., ::2] * 2,
        lambda x: x[-1] * x[:, -2:-1][0],
        lambda x: torch.stack([x, x * 2], -1),
        lambda x: torch.cat([x, x.new_zeros(0), x[:1]]) if x.dim() == 1 else torch.cat([x, x], 1),
        lambda x: torch.cat([x, x.double()], 2),
        lambda x: sum(x.split([1, 3], 2)[1].unbind(1)) + x.chunk(2, 2)[0][:, 0, :1],
        lambda x: x.unflatten(2, (2, 2)).flatten(1) * 2,
        lambda x: x.expand(3, *x.shape) * 2,
        lambda x: torch.hstack([x, x]) * torch.vstack([x[0], x[0]]).sum(),
        lambda x: (
            F.pixel_shuffle(x[:, :, None, :].expand(-1, 4, 2, -1), 2) * 2
            if x.shape[1] == 4
            else F.pixel_shuffle(x.reshape(-1, 4, 1, 3), 2) * 2
        ),
        lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="xy")[1] * 2,
        lambda x: x.tril(1) + x.triu(-1) + torch.eye(3, 4),
        lambda x: torch.outer(torch.arange(3), torch.arange(0.0, 8.0, 2.0)) + x,
        lambda x: x * torch.tensor(2.0) + torch.tensor([1.0, -0.0, 3.0, math.inf]),
        lambda x: torch.zeros_like(x) + torch.ones(3, 4) + torch.full((4,), 2.5) + x.new_ones(1),
    ],
)
def test_views_and_creation(function) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    graph = assert_row(module_of(lambda self, x: function(x)), x)
    reductions = {"aten.sum.default"}
    assert {name for name in ops_of(graph) if name.startswith("aten.")} <= reductions


class Writes(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 0] = 1.0
        y[1:3] = x[1:3] * 2
        y[:, 2:4] += 1
        return y.relu_()


def test_writes_into_a_tensor_of_its_own() -> None:
    graph = assert_row(Writes(), torch.randn(5, 6))
    assert not any(name.startswith("aten.") for name in ops_of(graph))


def test_numbers_read_from_tensors() -> None:
    def forward(self, x, level):
        return x * level.item() + (self.table[1].item() * 2 - 1) * x.exp()

    model = module_of(forward, table=torch.tensor([1.0, 3.0]))
    graph = assert_row(model, torch.randn(3, 4), torch.tensor(2.5))
    assert ops_of(graph).count("aten.detach.default") == 2


def test_a_long_table_of_numbers_stays_a_call() -> None:
    table = [[float(row * column) for column in range(4)] for row in range(3)]
    graph = assert_row(module_of(lambda self, x: x * torch.tensor(table)), torch.randn(3, 4))
    assert ops_of(graph) == ["torch.tensor", "mul"]


def test_batch_normalisation_by_running_statistics_is_pointwise() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2.0)
    nn.init.normal_(model[1].weight)
    graph = assert_row(model, torch.randn(2, 3, 8, 8))
    calls = [node for node in graph.nodes() if node.op is Op.CALL]
    assert [call.attrs.target for call in calls] == ["aten.conv2d.default"]


def test_thresholds_of_half_tensors_are_rounded_as_eager_rounds() -> None:
    x = torch.tensor([0.1, 0.0999], dtype=torch.float16).repeat(2)
    assert_row(module_of(lambda self, x: (x > 0.1, x == 0.1, F.threshold(x, 0.1, 5.0))), x)


def test_calls_keep_their_arguments_and_say_why() -> None:
    model = module_of(
        lambda self, x: torch.renorm(x, 2, 0, 1.0) + F.adaptive_avg_pool1d(x, 7)[:, :1]
    )
    graph = exported(model, HARD[None]).graph
    calls = [node.attrs for node in graph.nodes() if node.op is Op.CALL]
    assert [(c.target, c.arguments[1:], c.reason) for c in calls] == [
        ("aten.renorm.default", (2, 0, 1.0), "no kernel is known for aten.renorm.default"),
        (
            "aten.adaptive_avg_pool1d.default",
            ((7,),),
            "windows of several widths are the library's",
        ),
    ]
    assert {str(t) for c in calls for t in c.results} == {"f32[1, 20]", "f32[1, 7]"}


def test_a_sum_of_products_is_rounded_once() -> None:
    """What is left where it cancels is right, in the results of a file and in its gradients."""
    x, y = torch.rand(64) + 1, torch.rand(64) * 1e-3 - 1
    graph = exported(module_of(lambda self, x, y: torch.addcmul(x, x, y)), x, y).graph
    assert ops_of(graph) == ["addcmul"]
    (found,) = interpret_outputs(graph, {"x": x.numpy(), "y": y.numpy()})
    exact = x.double() * (1 + y.double())
    torch.testing.assert_close(torch.from_numpy(found).double(), exact, rtol=1e-7, atol=0)
    counts = torch.arange(4)
    graph = assert_row(module_of(lambda self, x: torch.addcmul(x, x, x, value=2)), counts)
    assert "addcmul" not in ops_of(graph)
