"""Gradients by kernels of what is no product, norm or elementwise work alone: on the CPU, and as
CUDA under emulation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import CountCalls, Pair, kernels_in, leaves, load_file
from tests.behaviour.products import pair_of_texts, text_of
from tests.behaviour.test_training import require_same_as_eager, total

from opweld.driver import compile_file
from opweld.options import Options

SOURCE = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 3, padding=1)
        self.embedding = nn.Embedding(11, 12)
        self.vector = nn.Parameter(torch.randn(12))

    def pooled(self, image):
        far = F.max_pool2d(torch.relu(image - 0.1), 3, 2, 1)
        near = F.max_pool2d(image * 2, 2)
        mean = F.avg_pool2d(image.square(), 3, 2, 1)
        return far, near, mean

    def read(self, rows):
        numbers = (rows[:, :5].detach().abs() * 3).long().clamp(0, 10)
        tokens = F.layer_norm(self.embedding(numbers) * 3.0, (12,))
        return tokens, torch.gather(rows, 1, numbers) * 2

    def condensed(self, rows):
        product = torch.prod(rows, 1) * 2
        largest = rows.max(1).values * 3
        running = torch.logcumsumexp(rows, 1)
        return product, largest, running

    def forward(self, image, rows):
        convolved = F.gelu(self.conv(image))
        pairs = rows[:, ::2] * rows[:, 1::2]
        power = torch.pow(rows.abs() + 1, rows)
        projected = (rows @ self.vector).tanh()
        pooled, read = self.pooled(image), self.read(rows)
        return convolved, pairs, power, projected, *pooled, *read, *self.condensed(rows)


def get_inputs():
    return [torch.randn(3, 4, 8, 8), torch.randn(3, 12)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("kinds")
    if request.param == "cuda":
        return pair_of_texts("kinds", SOURCE, text_of("kinds", SOURCE, training=True), 0, folder)
    path = folder / "kinds.py"
    path.write_text(SOURCE, "utf-8")
    text = compile_file(path, Options(target="cpu", check=False, training=True)).text
    new = load_file(folder / "kinds_new.py", text)
    return Pair("kinds", SOURCE, text, 0, load_file(path, SOURCE), new)


@pytest.mark.parametrize("batch", [3, 1, 8])
def test_gradients_are_near_float64(pair: Pair, batch: int) -> None:
    require_same_as_eager(pair, batch)


def test_every_group_has_kernels(pair: Pair) -> None:
    groups = set(re.findall(r"^def _(k\d+_\w+)_reference\(", pair.text, re.M))
    ours = set(re.findall(r"^def _(k\d+_\w+)_backward\(_kernels", pair.text, re.M))
    of_numbers = {name for name in groups if "_cast_clamp_min" in name}  # an index has none
    assert len(ours) > 5 and ours == groups - of_numbers


def test_what_stays_the_librarys_scatters_nothing(pair: Pair) -> None:
    """But for reads of single elements, whose order `use_deterministic_algorithms` fixes."""
    _, new = pair.models()
    given = [x.requires_grad_() for x in pair.inputs()]
    loss = total(tuple(leaves(new(*given))))
    with CountCalls() as count:
        loss.backward()
    called = {str(name) for name in count.others}
    assert not [name for name in called if "pool" in name or "index_put" in name]
    assert any("convolution_backward" in name for name in called)
    assert any("embedding_dense_backward" in name for name in called)


def test_frozen_filters_have_no_gradient(pair: Pair) -> None:
    _, new = pair.models()
    new.conv.weight.requires_grad_(False)
    given = [x.requires_grad_() for x in pair.inputs()]
    loss = total(tuple(leaves(new(*given))))
    with CountCalls() as count:
        loss.backward()
    assert sum("convolution_backward" in str(name) for name in count.others) == 1
    assert torch.isfinite(given[0].grad).all()


def test_gradcheck_in_double(tmp_path: Path) -> None:
    """Also of gradients of gradients, which are the reference's."""
    source = SOURCE.replace("(3, 4, 8, 8)", "(1, 4, 5, 6)").replace("(3, 12)", "(1, 12)")
    source = re.sub(r"torch\.randn\((.*?)\)", r"torch.randn(\1, dtype=torch.float64)", source)
    source = source.replace("padding=1)", "padding=1).double()")
    source = source.replace("nn.Embedding(11, 12)", "nn.Embedding(11, 12).double()")
    path = tmp_path / "doubles.py"
    path.write_text(source, "utf-8")
    text = compile_file(path, Options(target="cpu", check=False, training=True)).text
    new = load_file(tmp_path / "doubles_new.py", text)
    torch.manual_seed(3)
    model, inputs = new.ModelNew(), [x.requires_grad_() for x in new.get_inputs()]
    given = (*inputs, *model.parameters())
    names = [name for name, _ in model.named_parameters()]

    def run(image: torch.Tensor, rows: torch.Tensor, *values: torch.Tensor) -> Any:
        named = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, named, (image, rows))

    loss = total(tuple(leaves(run(*given))))
    assert kernels_in(loss.backward) > 5
    assert torch.autograd.gradcheck(run, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, given, fast_mode=True)


ATTENTION = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.queries, self.keys, self.values = (nn.Linear(64, 64) for _ in range(3))

    def forward(self, x):
        b, t, d = x.shape
        each = (layer(x) for layer in (self.queries, self.keys, self.values))
        q, k, v = (y.view(b, t, 2, 32).transpose(1, 2) for y in each)
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(-1, -2) / 5.6).masked_fill(later, float("-inf"))
        return (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, t, d)


def get_inputs():
    return [torch.randn(2, 24, 64)]


def get_init_inputs():
    return []
"""


def test_attention_makes_its_products_again(tmp_path: Path) -> None:
    """Its kernel leaves none of them."""
    text = text_of("attention", ATTENTION, "mma", training=True)
    made = pair_of_texts("attention", ATTENTION, text, 0, tmp_path)
    head = r"^def _k\d+_attention_backward\(_kernels, _need, grad, \w+, \w+, \w+\):"
    assert re.search(head, text, re.M)
    require_same_as_eager(made, 2, 5e-6)
