"""Models of blocks: the text mirrors their classes, and the numbers are the original's."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models import blocks, elements
from tests.models.emitted import Emitted, emit_module
from torch import nn

from opweld.driver import compile_module
from opweld.ir.original import Original
from opweld.options import Options

Inputs = tuple[torch.Tensor, ...]

ROWS = torch.randn(6, 8)
MODELS: list[tuple[type[nn.Module], Inputs]] = [
    (blocks.Listed, (ROWS,)),
    (blocks.Chained, (ROWS,)),
    (blocks.Shared, (ROWS,)),
    (blocks.Reached, (ROWS,)),
    (blocks.Carried, (ROWS, ROWS * 0.5)),
    (blocks.Swapped, (ROWS, ROWS * 0.5)),
    (blocks.Choosing, (ROWS,)),
    (blocks.Nested, (ROWS,)),
    (blocks.Across, (ROWS,)),
    (blocks.Units, (torch.randn(3, 3, 6, 6),)),
    (blocks.Padded, (torch.randn(3, 4, 6, 6),)),
    (blocks.Sized, (ROWS,)),
    (blocks.Dropping, (ROWS,)),
]


QUICK = {("Nested", False), ("Units", True)}
CASES = [
    pytest.param(
        *(model, inputs, training),
        id=f"{model.__name__}-{'training' if training else 'eval'}",
        marks=[] if (model.__name__, training) in QUICK else pytest.mark.slow,
    )
    for training in (False, True)
    for model, inputs in MODELS
]


@pytest.mark.parametrize("model, inputs, training", CASES)
def test_blocks_compute_what_the_original_does(
    model: type[nn.Module], inputs: Inputs, training: bool, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    made = emit_module(model().train(training), (inputs, {}), tmp_path)
    for batch in (2, 6):
        agrees(made, tuple(each[:batch].clone() for each in inputs))


def agrees(made: Emitted, inputs: Inputs) -> None:
    """Results, gradients and buffers, twice in a row, and by torch.compile without a break."""
    original, new = copy.deepcopy(made.original), adopted(made)
    whole = torch.compile(adopted(made), fullgraph=True, backend="aot_eager")
    for _ in range(2):
        expected = seen(original, inputs)
        for got in (seen(new, inputs), seen(whole, inputs)):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def adopted(made: Emitted) -> Any:
    return type(made.new).adopt(copy.deepcopy(made.original))


def seen(module: nn.Module, inputs: Inputs) -> Any:
    """What a call gives without gradients and with them, and the buffers after both."""
    module.zero_grad()
    torch.manual_seed(5)
    with torch.no_grad():
        plain = module(*(each.clone() for each in inputs))
    given = [each.clone().requires_grad_() for each in inputs]
    torch.manual_seed(5)
    result = module(*given)
    (
        result * torch.linspace(-1, 1, result.numel(), device=result.device).reshape(result.shape)
    ).sum().backward()
    grads = [each.grad for each in (*given, *module.parameters())]
    return [plain, result.detach()], grads, [each.clone() for each in module.buffers()]


def text_of(module: nn.Module, *inputs: torch.Tensor, target: str = "sm_90a") -> str:
    """The classes of the file for a GPU, where products are kernels, and convolutions on sm_90a."""
    cls = type(module)
    original = Original("blocks.py", cls.__module__, cls.__qualname__, None)
    options = Options(target=target, check=False)
    text = compile_module(module, inputs, {}, original, options).text
    return text.partition("_opweld_fits(self")[0].rpartition('"""\n\n\ndef _k')[2]


def test_equal_blocks_of_a_list_are_a_loop() -> None:
    text = text_of(blocks.Listed().eval(), ROWS)
    assert methods_of("Block", text) == ["forward"]  # also of the first, which reads the argument
    assert re.search(r"for block in self\.blocks:\n +x = _Block\.forward\(", text)


def methods_of(name: str, text: str) -> list[str]:
    (found,) = re.findall(rf"^class _{name}:\n.*?(?=^class )", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"def (\w+)\(", found)


def test_a_class_of_two_graphs_has_two_methods() -> None:
    text = text_of(blocks.Choosing().eval(), ROWS)
    assert methods_of("Chosen", text) == ["forward", "forward_2"]
    calls = re.findall(r"_Chosen\.(\w+)\(blocks\[(\d)\]", text)
    assert calls == [("forward", "0"), ("forward_2", "1"), ("forward", "2"), ("forward_2", "3")]


def test_a_kernel_across_a_boundary_puts_the_child_into_its_parent() -> None:
    text = text_of(blocks.Across().eval(), ROWS)
    assert "_Scale" not in text
    assert "self.scale.factor" in text


def test_two_values_go_from_turn_to_turn() -> None:
    text = text_of(blocks.Carried().eval(), ROWS, ROWS)
    loop = (
        r"for mixer in .*:\n +(\w+), (\w+) = _Mixer\.forward"
        r"\(mixer, (\w+), (\w+), memory, _kernels\)"
    )
    (names,) = re.findall(loop, text)
    assert names[:2] == names[2:]


def test_results_in_another_order_are_no_loop() -> None:
    text = text_of(blocks.Swapped().eval(), ROWS, ROWS)
    assert "for mixer in" not in text
    assert "blocks = [*self.blocks]" in text
    assert "_Mixer.forward(blocks[1], " in text


def test_a_weight_of_another_module_is_handed_over() -> None:
    text = text_of(blocks.Reached().eval(), ROWS)
    assert "fc_weight = self.second.fc.weight" in text
    assert "_Block.forward(self.first, x, fc_weight, _kernels)" in text


def test_strides_of_convolutions_are_those_of_the_modules() -> None:
    text = text_of(blocks.Units().eval(), torch.randn(3, 3, 6, 6), target="sm_80")
    assert methods_of("Unit", text) == ["forward", "forward_2"]
    assert "self.conv(x)" in text


def test_a_layer_that_pads_is_written_out() -> None:
    text = text_of(blocks.Padded().eval(), torch.randn(3, 4, 6, 6), target="sm_80")
    assert methods_of("Circular", text)
    assert "= self.conv(" not in text
    assert "torch.nn.functional.conv2d(pad_out, self.conv.weight" in text


def test_statistics_of_blocks_are_tracked_at_the_end_in_one_call() -> None:
    text = text_of(blocks.Units().train(), torch.randn(3, 3, 6, 6))
    assert text.count("_kernels.track(0.1, *_tracked)") == 1
    assert "_tracked[1] += [self.norm.running_mean, self.norm.running_var]" in text


def test_frozen_weights_are_compiled_while_gradients_are_recorded(tmp_path: Path) -> None:
    """Dynamo takes no function of several tensors that nobody differentiates."""
    made = emit_module(blocks.Listed().eval().requires_grad_(False), ((ROWS,), {}), tmp_path)
    whole = torch.compile(adopted(made), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(whole(ROWS), made.original(ROWS), rtol=1e-4, atol=1e-5)


def test_integers_of_nan_and_of_zeros_are_eagers(tmp_path: Path) -> None:
    """A compiler may take the way to an integer and back for nothing."""
    x = torch.randn(8, 40)
    x[1] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, -0.04] * 8)
    made = emit_module(elements.ThereAndBack(), ((x,), {}), tmp_path)
    ours, theirs = made.new(x.clone()), made.original(x.clone())
    assert kernels_in(lambda: made.new(x.clone()))
    for mine, eager in zip(ours, theirs, strict=True):
        assert torch.equal(mine.view(torch.int32), eager.view(torch.int32))
