"""Models of blocks: the text mirrors their classes, and the numbers are the original's."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models import blocks
from tests.models.emitted import Emitted, emit_module
from torch import nn

ROWS = torch.randn(6, 8)
IMAGES = torch.randn(3, 4, 6, 6)
# What is to stand in the text of the file.
MODELS: list[tuple[type[nn.Module], tuple[torch.Tensor, ...], str]] = [
    (blocks.Listed, (ROWS,), r"for block in \[\*self.blocks\]\[1:\]:\n +(\w+) = _Block.forward_2"),
    (blocks.Chained, (ROWS,), r"for block"),
    (blocks.Shared, (ROWS,), r"_Block.forward\w*\(self.second, "),
    (blocks.Reached, (ROWS,), r"_Block.forward\w*\(self.second, \w+, first_fc_weight"),
    (blocks.Carried, (ROWS, ROWS * 0.5), r"for mixer in .*:\n +(\w+), (\w+) = _Mixer.forward"),
    (blocks.Swapped, (ROWS, ROWS * 0.5), r"_Mixer.forward"),
    (blocks.Choosing, (ROWS,), r"_Chosen.forward_2\(self.blocks\[1\]"),
    (blocks.Nested, (ROWS,), r"_Stage.forward"),
    (blocks.Across, (ROWS,), r"class ModelNew"),
    (blocks.Units, (torch.randn(3, 3, 6, 6),), r"_Unit.forward\w*\(self.units\[1\]|for unit in"),
    (blocks.Padded, (IMAGES,), r"_Circular.forward"),
    (blocks.Sized, (ROWS,), r"_Splitting.forward"),
    (blocks.Dropping, (ROWS,), r"_Dropped.forward"),
]


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True], ids=["eval", "training"])
@pytest.mark.parametrize("model, inputs, text", MODELS, ids=[m.__name__ for m, *_ in MODELS])
def test_blocks_compute_what_the_original_does(
    model: type[nn.Module],
    inputs: tuple[torch.Tensor, ...],
    text: str,
    training: bool,
    tmp_path: Path,
) -> None:
    torch.manual_seed(3)
    made = emit_module(model().train(training), (inputs, {}), tmp_path)
    assert re.search(text, made.compiled.text), made.compiled.text
    for batch in (2, 6):
        agrees(made, tuple(each[:batch].clone() for each in inputs))


def agrees(made: Emitted, inputs: tuple[torch.Tensor, ...]) -> None:
    """Results, gradients and buffers, twice in a row, and by torch.compile without a break."""
    original = copy.deepcopy(made.original)
    new = type(made.new).adopt(copy.deepcopy(made.original))
    whole = torch.compile(new_like(made), fullgraph=True, backend="aot_eager")
    for _ in range(2):
        expected, grads, buffers = seen(original, inputs)
        for got in (seen(new, inputs), seen(whole, inputs)):
            torch.testing.assert_close(got, (expected, grads, buffers), rtol=1e-4, atol=1e-5)


def new_like(made: Emitted) -> nn.Module:
    return type(made.new).adopt(copy.deepcopy(made.original))


def seen(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    """What a call gives without gradients and with them, and the buffers after both."""
    module.zero_grad()
    torch.manual_seed(5)
    with torch.no_grad():
        plain = module(*(each.clone() for each in inputs))
    given = [each.clone().requires_grad_() for each in inputs]
    torch.manual_seed(5)
    result = module(*given)
    (result * torch.linspace(-1, 1, result.numel()).reshape(result.shape)).sum().backward()
    grads = [each.grad for each in (*given, *module.parameters())]
    return (plain, result.detach()), grads, [each.clone() for each in module.buffers()]


def test_a_class_of_two_graphs_has_two_methods(tmp_path: Path) -> None:
    text = emit_module(blocks.Choosing().eval(), ((ROWS,), {}), tmp_path).compiled.text
    (methods,) = re.findall(r"^class _Chosen:\n.*?(?=^class )", text, re.MULTILINE | re.DOTALL)
    assert re.findall(r"def (\w+)\(", methods) == ["forward", "forward_2"]


def test_a_kernel_across_a_boundary_puts_the_child_into_its_parent(tmp_path: Path) -> None:
    text = emit_module(blocks.Across().eval(), ((ROWS,), {}), tmp_path).compiled.text
    assert "_Scale" not in text
    assert "self.scale.factor" in text
