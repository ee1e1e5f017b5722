"""What no computation of the same results can do without."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from opweld.judge.load import Call
from opweld.judge.measure import required as module

GENERATOR = torch.Generator().manual_seed(3)


class Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor], *shape: int) -> None:
        super().__init__()
        self.function = function
        if shape:
            self.weight = nn.Parameter(torch.randn(shape, generator=GENERATOR))

    def forward(self, *inputs: Tensor) -> Tensor:
        weight = (self.weight,) if hasattr(self, "weight") else ()
        return self.function(*inputs, *weight)


def required(
    function: Callable[..., Tensor],
    *inputs: Tensor,
    weight: tuple[int, ...] = (),
    cached: int = 0,
    stay: bool = False,
) -> tuple[float, float]:
    model = Function(function, *weight)
    found = module.required(
        model, lambda: Call(inputs, {}).map(torch.clone), cached, outputs_may_stay=stay
    )
    return found.num_bytes, found.flops


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def test_a_pointwise_model_has_to_read_and_write_everything() -> None:
    assert required(torch.nn.functional.gelu, drawn(8, 16)) == (2 * 512, 0)
    assert required(torch.relu, drawn(8, 16), cached=1000) == (24, 0)
    assert required(torch.relu, drawn(8, 16), cached=1000, stay=True) == (512, 0)


def test_inputs_that_do_not_matter_need_not_be_read() -> None:
    assert required(lambda x: x * 0, drawn(8, 16)) == (0, 0)
    assert required(lambda x: x[:, :2] + 1, drawn(8, 64)) == (0, 0)
    assert required(lambda x, y: x + 1, drawn(8, 16), drawn(99, 99)) == (2 * 512, 0)


def test_a_constant_dimension_of_an_output_need_not_be_written() -> None:
    spread = required(lambda x: x.sum(1, keepdim=True).expand(8, 64).clone(), drawn(8, 16))
    assert spread == (512 + 32, 0)


def test_a_product_counts_in_half_with_its_weight() -> None:
    found = required(lambda x, w: x @ w, drawn(8, 16), weight=(16, 4))
    assert found == (4 * (8 * 16 + 16 * 4 + 8 * 4), 0.5 * 2 * 8 * 16 * 4)
    assert required(lambda x, y: x @ y, drawn(8, 16), drawn(16, 4))[1] == 0.5 * 2 * 8 * 16 * 4


def test_what_a_clever_rewrite_saves_does_not_count() -> None:
    full = 0.5 * 2 * 16 * 16 * 4
    diagonal = required(lambda v, y: torch.diag(v) @ y, drawn(16), drawn(16, 4))
    assert 0 < diagonal[1] <= full / 16
    summed = required(lambda x, w: (x @ w).sum(1), drawn(16, 16), weight=(16, 4))
    assert summed == (4 * (16 * 16 + 16 * 16 * 4 / (16 * 4) + 16), pytest.approx(full / 4))
    merged = required(lambda x, w: (x @ w[:2]) @ w, drawn(64, 2), weight=(16, 16))
    assert merged[1] <= 0.5 * 2 * 64 * 2 * 16
    own = required(lambda x, w: x + w @ w, drawn(16, 16), weight=(16, 16))
    assert own[1] == 0, "a product of weights might be kept"


def test_a_convolution_counts_one_operation_a_window() -> None:
    conv = torch.nn.functional.conv2d
    found = required(lambda x, w: conv(x, w, padding=1), drawn(2, 3, 8, 8), weight=(5, 3, 3, 3))
    assert found[1] == pytest.approx(0.5 * 2 * (2 * 5 * 8 * 8) * 3 * min(1, 384 / 384))


def test_a_model_that_is_slow_or_random_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Function(torch.relu)
    make = Call((drawn(4, 4),), {}).map
    assert module.depends_on_all(model, lambda: make(torch.clone), 0)
    counter = iter(range(100))
    other = Function(lambda x: x + next(counter))
    assert not module.depends_on_all(other, lambda: make(torch.clone), 0)
    monkeypatch.setattr(module, "_PROBE_BUDGET_S", 0.0)
    assert not module.depends_on_all(model, lambda: make(torch.clone), 0)
