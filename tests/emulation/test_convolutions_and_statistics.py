"""Convolutions before norms that take statistics: kernels where no gradient is asked for, which the
original computes.
"""

from __future__ import annotations

import copy
import logging
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in, load_file
from tests.behaviour.products import pair_of_texts, text_of
from tests.emulation.convolution_models import (
    Rounded,
    convolution_pair,
    require_kernels,
    source,
)
from tests.gpu.emitting import all_convolutions_ours
from torch import Tensor

from opweld.interface.reasons import log_reasons
from opweld.interface.why import FORWARD_ONLY, HELD, ORIGINAL, why

MODEL = source(
    """self.conv, self.norm = nn.Conv2d(33, 36, 3, padding=1), nn.BatchNorm2d(36, momentum=0.3)
    self.last, self.after = nn.Conv2d(36, 36, 3, stride=1), nn.BatchNorm2d(36)""",
    """y = torch.relu(self.norm(self.conv(x)))
    return F.silu(self.after(self.last(y)) + y[:, :, 1:-1, 1:-1])""",
    "2, 33, 7, 9",
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("statistics")
    return convolution_pair("statistics", MODEL, folder, mode="both")


def in_training(pair: Pair) -> tuple[Any, Any, Tensor]:
    original, new = (model.train() for model in pair.models())
    return original, new, pair.inputs(3)[0]


def buffers(model: Any) -> list[Tensor]:
    return [each.double() for each in model.buffers()]


def test_each_convolution_is_a_kernel(pair: Pair) -> None:
    require_kernels(pair, 4)  # two in each mode


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_results_and_statistics_are_near_float64(pair: Pair, form: torch.memory_format) -> None:
    original, new, x = in_training(pair)
    x = x.contiguous(memory_format=form)
    with torch.no_grad():
        for _ in range(2):
            eager = copy.deepcopy(original)(x)
            with Rounded():
                exact = original.double()(x.double())
            original.float()
            mine = new(x)
            assert mine.stride() == eager.stride()
            torch.testing.assert_close(mine.double(), exact, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(buffers(new), buffers(original), rtol=1e-4, atol=1e-4)
        assert kernels_in(lambda: new(x)) >= 4


def test_in_eval_statistics_stay(pair: Pair) -> None:
    original, new = pair.models()
    (x,) = pair.inputs(2)
    with torch.no_grad():
        assert kernels_in(lambda: new(x)) >= 2
        torch.testing.assert_close(new(x), original(x), rtol=1e-2, atol=1e-2)
    assert all(map(torch.equal, new.buffers(), original.buffers()))


@pytest.mark.parametrize("asking", ["weights", "input"])
def test_gradients_are_the_originals(pair: Pair, asking: str) -> None:
    original, new, x = in_training(pair)
    for model in (original, new):
        model.requires_grad_(asking == "weights")
    found = []
    for model in (original, new):
        own = x.clone().requires_grad_(asking == "input")
        result = model(own)
        result.square().mean().backward()
        grads = [each.grad for each in (own, *model.parameters()) if each.grad is not None]
        found.append([result, *grads])
    assert len(found[0]) == (9 if asking == "weights" else 2)
    assert all(map(torch.equal, *found))
    assert all(map(torch.equal, original.buffers(), new.buffers()))
    assert kernels_in(lambda: new(x.requires_grad_())) == 0


@pytest.mark.parametrize("asking", ["weights", "input"])
def test_a_call_that_asks_for_gradients_warns_of_the_option(
    asking: str, pair: Pair, tmp_path: Path
) -> None:
    new = load_file(tmp_path / "statistics_warned.py", pair.text).ModelNew().train()
    said = r"original: gradients are asked for; torch.no_grad\(\) runs .* optimize --training makes"
    elsewhere = copy.deepcopy(new).to("meta")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        elsewhere(pair.inputs(2)[0].to("meta"))
    new.requires_grad_(asking == "weights")
    with pytest.warns(UserWarning, match=said):
        new(pair.inputs(2)[0].requires_grad_(asking == "input"))
    new.requires_grad_(True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new(*pair.inputs(2))
        with torch.no_grad():
            new(*pair.inputs(2))


def test_in_eval_gradients_are_the_originals_too(pair: Pair) -> None:
    original, new = pair.models()
    (x,) = pair.inputs(2)
    assert why(new, pair.text, (x,), {}).endswith(FORWARD_ONLY)
    with torch.no_grad():
        assert why(new, pair.text, (x,), {}) == HELD
        assert FORWARD_ONLY not in why(new, pair.text, (x[:, 1:],), {})
    assert kernels_in(lambda: new(x)) == 0
    new.requires_grad_(False)
    assert kernels_in(lambda: new(x)) >= 2, "nobody asks"
    for model in (original, new):
        model.requires_grad_(True)
    found = [
        torch.autograd.grad(m(x).square().sum(), list(m.parameters())) for m in (new, original)
    ]
    assert all(map(torch.equal, *found))


def test_a_call_that_asks_for_gradients_is_logged_once(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = load_file(tmp_path / "statistics_logged.py", pair.text).ModelNew()
    (x,) = pair.inputs(2)
    with caplog.at_level(logging.INFO, "opweld.guards"):
        log_reasons(new, pair.text, torch.compiler.is_compiling)
        with torch.no_grad():
            new(x)
        assert caplog.messages == []
        for _ in range(2):
            new(x)
    assert [each.partition(": ")[2] for each in caplog.messages] == [f"{ORIGINAL}: {FORWARD_ONLY}"]


def test_the_file_says_what_its_kernels_are_for(pair: Pair) -> None:
    assert "Calls that ask for gradients run the original" in pair.text
    assert pair.text.count("gradients=False") == 2, "in either mode"
    references = set(re.findall(r"def _k\d+_(\w+)_reference", pair.text))
    assert references == set(), "no kernel alone moves what convolutions give"
    assert "autograd.Function" not in pair.text


def test_with_kernels_for_gradients_convolutions_are_the_librarys() -> None:
    with all_convolutions_ours():
        text = text_of("step", MODEL, "sm90", mode="training", training=True)
    forward = text[text.rindex("    def forward", 0, text.index("    def _opweld_fits")) :]
    assert forward.count("torch.nn.functional.conv2d(") == 2
    assert "_backward(_kernels, _need" in text
    assert "gradients=False" not in text and "run the original" not in text


OWN = source(
    "self.conv, self.norm = nn.Conv2d(33, 36, 3), nn.BatchNorm2d(36)",
    "return torch.relu(self.norm(Doubled.apply(self.conv(x))))",
    "2, 33, 7, 9",
).replace(
    "class Model",
    """class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Model""",
)


def test_the_option_is_not_advised_where_gradients_are_the_users_own(tmp_path: Path) -> None:
    text = convolution_pair("own", OWN, tmp_path, mode="training").text
    assert "gradients=False" in text
    assert "--training" not in text


def test_beside_another_dtype_a_call_that_asks_for_gradients_warns_too(tmp_path: Path) -> None:
    """Whose kernels are for calls with them: no test before all others leaves calls to PyTorch."""
    model = source("self.conv = nn.Conv2d(16, 24, 3)", "return self.conv(x).relu()", "2, 16, 9, 9")
    with all_convolutions_ours():
        text = text_of("two_dtypes", model, "sm90", mode="eval", dtype=("float16",))
    pair = pair_of_texts("two_dtypes", model, text, 0, tmp_path)
    (x,) = pair.inputs(2)
    _, new = pair.models()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.no_grad():
            assert kernels_in(lambda: new(x)) > 0
    with pytest.warns(UserWarning) as said:
        new.double()(x.double())
        new.float()(x)
        new(x)
    causes = [str(each.message).partition("original: ")[2].partition(";")[0] for each in said]
    assert causes == ["its tensors are float64", "gradients are asked for"]
