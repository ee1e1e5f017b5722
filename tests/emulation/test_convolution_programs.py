"""Random networks of convolutions in any layouts, emulated: beside float64."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch
from tests.behaviour.emitted import kernels_in, leaves
from tests.behaviour.products import pair_of_texts, text_of
from tests.emulation.convolution_models import Rounded
from tests.emulation.convolution_programs import laid_out, program
from tests.gpu.emitting import all_convolutions_ours, all_halos_ours
from torch import Tensor, nn

# By turns: whatever plans choose, and each convolution by kernels of ours.
CHOICES: tuple[Callable[[], AbstractContextManager[None]], ...] = (
    all_convolutions_ours,
    all_halos_ours,
    nullcontext,
)
QUICK = len(CHOICES)
# Of a step: one whose value next to 0 or tie a relu or a maximum decides otherwise would differ.
OF_STEPS = [101, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(102, 124))]
SEEDS = [
    *range(QUICK),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(QUICK, 40)),
]


def spread_statistics(model: nn.Module) -> None:
    for each in model.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm):
            assert each.running_mean is not None and each.running_var is not None
            each.running_mean.uniform_(-0.5, 0.5)
            each.running_var.uniform_(0.5, 2)


def require_near(found: list[Tensor], eager: list[Tensor], exact: list[Tensor]) -> None:
    """To float64 with operands of 11 bits, or four times as far as eager, which rounds none."""
    for ours, theirs, right in zip(found, eager, exact, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        wide = right.double()
        scale = wide.abs().max().clamp(min=1e-3)
        error, of_eager = ((each - wide).abs().max() / scale for each in (ours, theirs))
        assert error <= max(8e-3, 4 * of_eager), (error, of_eager)


@pytest.mark.parametrize("mode", ["eval", "training"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_network(seed: int, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and statistics, of two batches in layouts of their own, and again the same bits."""
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "4")
    written, name = program(seed), f"program_{seed}_{mode}"
    with CHOICES[seed % 3]():
        text = text_of(name, written, "sm90", mode=mode)
    pair = pair_of_texts(name, written, text, 0, tmp_path)
    original, new = pair.models()
    spread_statistics(original)
    new.load_state_dict(original.state_dict())
    random_state = random.Random(seed)
    for model in (original, new):
        model.train(mode == "training")
    with torch.no_grad():
        for batch in (2, random_state.choice((1, 3))):
            x = laid_out(*pair.inputs(batch), random_state)
            wide, again = copy.deepcopy(original).double(), copy.deepcopy(new)
            with Rounded():
                exact = [*leaves(wide(x.double())), *wide.buffers()]
            found = [*leaves(new(x)), *new.buffers()]
            eager = [*leaves(original(x)), *original.buffers()]
            require_near(found, eager, exact)
            for first, second in zip(found, leaves(again(x)), strict=False):
                assert torch.equal(first, second)
        assert kernels_in(lambda: new(x)) > 0


@pytest.mark.parametrize("seed", OF_STEPS)
def test_gradients(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the input and all parameters, in files of `--training`, of either mode."""
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "4")
    written, name, mode = program(seed), f"step_{seed}", ("eval", "training")[seed % 2]
    with CHOICES[seed // 2 % 3]():
        text = text_of(name, written, "sm90", mode=mode, training=True)
    pair = pair_of_texts(name, written, text, 0, tmp_path)
    original, new = pair.models()
    spread_statistics(original)
    new.load_state_dict(original.state_dict())
    for model in (original, new):
        model.train(mode == "training")
    drawn = random.Random(seed)
    for batch in (2, 3):
        x = laid_out(*pair.inputs(batch), drawn)
        with torch.no_grad():
            towards = [torch.randn_like(y) for y in leaves(copy.deepcopy(original)(x))]
        wide = copy.deepcopy(original).double()
        with Rounded():
            exact = gradients(wide, x.double(), towards)
        eager, found = (gradients(model, x, towards) for model in (original, new))
        require_near(found, eager, exact)


def gradients(model: nn.Module, x: Tensor, towards: list[Tensor]) -> list[Tensor]:
    """Of the input and of each parameter that the results depend on."""
    given = [x.detach().requires_grad_(), *model.parameters()]
    results = leaves(model(given[0]))
    found = torch.autograd.grad(
        results, given, [each.to(x.dtype) for each in towards], allow_unused=True
    )
    return [each for each in found if each is not None]
