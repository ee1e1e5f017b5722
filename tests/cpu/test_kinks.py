"""Gradients where a function has a corner: at the bounds, at ties, at zero, at NaN.

PyTorch chooses one side there, not always the same: hardtanh has gradient 0 at its bounds, clamp 1.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models.emitted import Emitted, emit_module
from torch import nn
from torch.nn import functional as F

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
INF, NAN = float("inf"), float("nan")
CORNERS = (-INF, -6.0, -3.0, -1.0, -0.5, -0.25, -0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 3.0, 6.0, INF, NAN)

FUNCTIONS: dict[str, Function] = {
    "relu": lambda x, y: F.relu(x),
    "relu6": lambda x, y: F.relu6(x),
    "hardtanh": lambda x, y: F.hardtanh(x, -0.5, 0.75),
    "hardsigmoid": lambda x, y: F.hardsigmoid(x),
    "hardswish": lambda x, y: F.hardswish(x),
    "threshold": lambda x, y: F.threshold(x, 0.25, -0.5),
    "softshrink": lambda x, y: F.softshrink(x, 0.5),
    "hardshrink": lambda x, y: F.hardshrink(x, 0.5),
    "leaky_relu": lambda x, y: F.leaky_relu(x, 0.2),
    "elu": lambda x, y: F.elu(x, 0.7),
    "selu": lambda x, y: F.selu(x),
    "celu": lambda x, y: F.celu(x, 1.5),
    "prelu": lambda x, y: F.prelu(x, y.reshape(-1)[:1]),
    "softplus": lambda x, y: F.softplus(x, 2.0, 6.0),
    "softsign": lambda x, y: F.softsign(x),
    "logsigmoid": lambda x, y: F.logsigmoid(x),
    "abs": lambda x, y: x.abs(),
    "sign": lambda x, y: torch.sign(x) * y,
    "floor": lambda x, y: torch.floor(x) + y,
    "clamp": lambda x, y: torch.clamp(x, -0.5, 0.75),
    "clamp_min": lambda x, y: torch.clamp(x, min=0.25),
    "clamp_max": lambda x, y: torch.clamp(x, max=0.25),
    "clamp_tensor": lambda x, y: torch.clamp(x, min=y.clamp(max=9.0) - 1.0, max=y),
    "clamp_crossed": lambda x, y: torch.clamp(x, 1.0, -1.0),
    "clamp_min_of_ties": lambda x, y: torch.clamp(x, min=y),
    "maximum": lambda x, y: torch.maximum(x, y),
    "minimum": lambda x, y: torch.minimum(x, y),
    "fmax": lambda x, y: torch.fmax(x, y),
    "fmin": lambda x, y: torch.fmin(x, y),
    "max_with_zero": lambda x, y: torch.maximum(x, torch.zeros_like(x)),
    "where": lambda x, y: torch.where(x > y, x * 2, y),
    "relu_of_relu": lambda x, y: F.relu(F.relu(x) * 2),
    "clamp_of_clamp": lambda x, y: torch.clamp(torch.clamp(x, -1.0, 1.0), -0.5, 0.5),
    "clamp_of_relu": lambda x, y: torch.clamp(F.relu(x), max=6.0),
    "clamp_of_tanh": lambda x, y: torch.clamp(torch.tanh(x), -1.0, 1.0),
    "relu_of_sigmoid": lambda x, y: F.relu(torch.sigmoid(x)),
    "abs_of_abs": lambda x, y: x.abs().abs(),
    "sqrt": lambda x, y: torch.sqrt(x),
    "rsqrt": lambda x, y: torch.rsqrt(x),
    "square_root_of_square": lambda x, y: (x * x).sqrt(),
    "power": lambda x, y: x.abs() ** 0.5,
    "cube": lambda x, y: x**3,
    "power_zero": lambda x, y: x**0.0,
    "tensor_power": lambda x, y: x.abs() ** y,
    "remainder": lambda x, y: torch.remainder(x, 0.5),
    "fmod": lambda x, y: torch.fmod(x, 0.5),
    "nan_to_num": lambda x, y: torch.nan_to_num(x, 0.5, 2.0, -2.0),
    "masked_fill": lambda x, y: x.masked_fill(x >= 0.25, 0.0),
    "hypot": lambda x, y: torch.hypot(x, y),
    "atan2": lambda x, y: torch.atan2(x, y),
    "copysign": lambda x, y: torch.copysign(x, y),
    "xlogy": lambda x, y: torch.xlogy(x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "logaddexp": lambda x, y: torch.logaddexp(x, y),
    "log1p_of_abs": lambda x, y: torch.log1p(x.abs()),
    "divide": lambda x, y: x / y,
    "sinc": lambda x, y: torch.sinc(x),
    "logit": lambda x, y: torch.logit(torch.sigmoid(x)),
    "logit_eps": lambda x, y: torch.logit(x, 0.25),
    "frac": lambda x, y: torch.frac(x),
    "gelu": lambda x, y: F.gelu(x),
    "gelu_tanh": lambda x, y: F.gelu(x, approximate="tanh"),
    "silu": lambda x, y: F.silu(x),
    "mish": lambda x, y: F.mish(x),
    "tanhshrink": lambda x, y: F.tanhshrink(x),
    "square": lambda x, y: x.square(),
    "power_fraction": lambda x, y: x**1.5,
    "power_minus_two": lambda x, y: x**-2.0,
    "reciprocal": lambda x, y: 1 / x,
    "addcdiv": lambda x, y: torch.addcdiv(x, y, x, value=0.5),
    "addcmul": lambda x, y: torch.addcmul(x, y, x, value=0.5),
    "half_of_x": lambda x, y: x / 2,
    "product_of_zero": lambda x, y: x * 0.0 + y,
    "angle": lambda x, y: torch.angle(x) * y,
    "rrelu": lambda x, y: F.rrelu(x, 0.1, 0.4),
    "glu": lambda x, y: F.glu(torch.stack((x, y)), dim=0)[0],
    "cancel": lambda x, y: (x * 2) / 2 - y + y,
}


class Corners(nn.Module):
    """Every function of the table, each a result of its own."""

    def forward(self, x, y):
        return {name: function(x, y) for name, function in FUNCTIONS.items()}


# Where eager's own answer depends on whether an element is in a vector or behind the last one.
SIGN_OF_ZERO = (
    "softshrink",
    "clamp_tensor",
    "clamp_min_of_ties",
    "maximum",
    "minimum",
    "max_with_zero",
)
GRADIENT_OF_NAN = ("hardshrink", "angle")


def corners() -> tuple[torch.Tensor, torch.Tensor]:
    """Every pair of the corners, ties among them."""
    values = torch.tensor(CORNERS)
    x, y = torch.meshgrid(values, values, indexing="ij")
    return x.contiguous(), y.contiguous()


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    folder = tmp_path_factory.mktemp("corners")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
        return emit_module(Corners().eval(), (corners(), {}), folder)


@pytest.fixture(scope="module")
def gradients(emitted: Emitted) -> dict[str, list[list[torch.Tensor]]]:
    """By function: the gradients of x and y by the emitted file, and by the original."""
    found: dict[str, list[list[torch.Tensor]]] = {name: [] for name in FUNCTIONS}
    for module in (emitted.new, emitted.original):
        x, y = (each.requires_grad_() for each in corners())
        for name, result in module(x, y).items():
            wanted = [x, y]
            grads = torch.autograd.grad(
                result, wanted, torch.full_like(result, 1.5), retain_graph=True, allow_unused=True
            )
            zeros = [torch.zeros_like(x) if g is None else g for g in grads]
            found[name].append(zeros)
    return found


def test_all_of_it_is_fused(emitted: Emitted) -> None:
    assert [row.name for row in emitted.compiled.main_rows if row.kind == "library"] == []
    with torch.no_grad():
        assert kernels_in(lambda: emitted.new(*corners())) == emitted.num_kernels


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient_at_corners(name: str, gradients: dict[str, list[list[torch.Tensor]]]) -> None:
    ours, theirs = gradients[name]
    for what, mine, other in zip("xy", ours, theirs, strict=True):
        close = torch.isclose(mine, other, rtol=1e-5, atol=1e-6, equal_nan=True)
        close[-1] |= name in GRADIENT_OF_NAN
        assert bool(close.all()), _first_difference(what, close, mine, other)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_at_corners(name: str, emitted: Emitted) -> None:
    x, y = corners()
    with torch.no_grad():
        ours, theirs = (m(x, y)[name] for m in (emitted.new, emitted.original))
        exact = FUNCTIONS[name](x.double(), y.double()).float()
    close = torch.isclose(ours, theirs, rtol=1e-5, atol=1e-6, equal_nan=True)
    # In float32 PyTorch's gelu gives NaN for an infinity; the float64 one does not.
    close |= torch.isclose(ours, exact, rtol=1e-5, atol=1e-6)
    assert bool(close.all()), _first_difference("the value", close, ours, theirs)
    if name not in SIGN_OF_ZERO:
        zeros = (ours == 0) & (theirs == 0)
        assert torch.equal(ours.signbit()[zeros], theirs.signbit()[zeros])


def _first_difference(
    what: str, close: torch.Tensor, mine: torch.Tensor, other: torch.Tensor
) -> str:
    row, column = (~close).nonzero()[0].tolist()
    at = f"x={CORNERS[row]}, y={CORNERS[column]}"
    return f"{what} at {at}: {mine[row, column]} instead of {other[row, column]}"
