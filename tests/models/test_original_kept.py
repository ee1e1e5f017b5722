"""Models of which nothing is fused: ModelNew is the original, or the model is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models import gradient_modes, structure
from tests.models.comparing import assert_close, copied, tensors, training
from tests.models.emitted import emit_module
from torch import nn
from torch.nn.utils import parametrize

from opweld.errors import CaptureError


@dataclass(frozen=True)
class Kept:
    """A module that runs as it is, and the words that say why."""

    model: type[nn.Module]
    words: str

    @property
    def name(self) -> str:
        return self.model.__name__


KEPT = (
    Kept(structure.OutsideTorch, "applies ByNumpy, which has its own gradient"),
    Kept(structure.AddsToInput, "changes its input x"),
    Kept(structure.Remembers, "assigns to self.last"),
    Kept(structure.LocalResult, "returns a Hidden"),
    Kept(structure.DerivedResult, "returns a Whole"),
    Kept(structure.Hooked, "has hooks"),
    Kept(structure.UnreadDraw, "draws random numbers"),
    Kept(gradient_modes.SwitchedOn, "switches gradients on for what it returns"),
    Kept(gradient_modes.GradRegion, "switches gradients on for what it returns"),
    Kept(gradient_modes.DecoratedOn, "switches gradients on for what it returns"),
)


def _call() -> tuple[tuple[torch.Tensor], dict[str, object]]:
    torch.manual_seed(4)
    return (torch.randn(4, 8),), {}


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.name)
def test_the_original_runs_and_says_why(kept: Kept, tmp_path: Path) -> None:
    emitted = emit_module(kept.model().eval(), _call(), tmp_path)
    (row,) = emitted.compiled.plan_rows
    assert kept.words in row.reason
    assert "ModelNew is the original" in emitted.compiled.text
    assert_same_effects(emitted.new, emitted.original)
    assert kernels_in(lambda: emitted.new(*_call()[0])) == 0


def assert_same_effects(new: nn.Module, old: nn.Module) -> None:
    """Two calls: the same results, inputs, buffers and random numbers."""
    for _ in range(2):
        found = []
        for module in (new, old):
            args, _ = _call()
            result = module(*args)
            found.append([*tensors(result), *args, *module.buffers(), torch.rand(2)])
        assert_close(*found)
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_where_a_gradient_is_the_users_own_kernels_run_without_gradients(tmp_path: Path) -> None:
    emitted = emit_module(structure.OwnGradient().eval(), _call(), tmp_path)
    new, old, (x,) = emitted.new, emitted.original, _call()[0]
    (said,) = (row for row in emitted.compiled.plan_rows if row.variant == "with gradients")
    assert said.reason == "the forward applies Straight, which has its own gradient"
    with torch.no_grad():
        assert kernels_in(lambda: new(x)) == emitted.num_kernels == 1
        assert torch.equal(new(x), old(x))
    assert kernels_in(lambda: new(x)) == 0, "the parameter asks for a gradient"
    new.requires_grad_(False)
    assert kernels_in(lambda: new(x)) == 1
    assert kernels_in(lambda: new(x.clone().requires_grad_())) == 0
    with torch.inference_mode():
        assert kernels_in(lambda: new(x)) == 1
    assert kernels_in(lambda: torch.func.grad(lambda v: new(v).sum())(x)) == 0
    got, wanted = (torch.func.grad(lambda v, m=m: m(v).sum())(x) for m in (new, old))
    assert torch.equal(got, wanted)


def _add_another(model: nn.Module) -> None:
    parametrize.register_parametrization(model.plain, "weight", structure.Symmetric(2.0))


def _change_one(model: nn.Module) -> None:
    model.plain.parametrizations.weight[0].scale = 2.0


@pytest.mark.parametrize("change", [_add_another, _change_one])
def test_weights_that_are_parametrized_otherwise(
    change: Callable[[nn.Module], None], tmp_path: Path
) -> None:
    emitted = emit_module(structure.Parametrized().eval(), _call(), tmp_path)
    new, old, (x,) = emitted.new, emitted.original, _call()[0]
    assert kernels_in(lambda: new(x)) == emitted.num_kernels > 0
    for model in (new, old):
        change(model)
    assert kernels_in(lambda: new(x)) == 0
    assert torch.equal(new(x), old(x))


def test_a_weight_that_is_parametrized_no_more(tmp_path: Path) -> None:
    """The copy loses its property, too: PyTorch gives both one class."""
    emitted = emit_module(structure.Parametrized().eval(), _call(), tmp_path)
    (x,) = _call()[0]
    wanted = emitted.original(x)
    parametrize.remove_parametrizations(emitted.new.plain, "weight")
    assert kernels_in(lambda: emitted.new(x)) == 0
    assert torch.equal(emitted.new(x), wanted)


@pytest.mark.parametrize("model", [gradient_modes.SwitchedOn, gradient_modes.SwitchedOnInside])
def test_results_require_gradients_as_the_originals_do(
    model: type[nn.Module], tmp_path: Path
) -> None:
    emitted = emit_module(model().eval(), _call(), tmp_path)
    assert (emitted.num_kernels > 0) == (model is gradient_modes.SwitchedOnInside)
    x = _call()[0][0]
    for asked in (False, True):
        with torch.set_grad_enabled(asked):
            new, old = emitted.new(x), emitted.original(x)
        assert new.requires_grad == old.requires_grad
        torch.testing.assert_close(new, old)


@pytest.mark.skipif(
    torch.__version__ < "2.12", reason="torch.export of 2.11 ends in an error within torch.func.jvp"
)
def test_functions_of_torch_func_are_fused(tmp_path: Path) -> None:
    emitted = emit_module(gradient_modes.Mapped().eval(), _call(), tmp_path)
    x = torch.randn(4, 8)
    torch.testing.assert_close(emitted.new(x), emitted.original(x))
    assert kernels_in(lambda: emitted.new(x)) > 0


def test_nothing_to_fuse(tmp_path: Path) -> None:
    emitted = emit_module(structure.Sliding().eval(), _call(), tmp_path)
    assert emitted.num_kernels == 0
    assert {row.kind for row in emitted.compiled.main_rows} == {"library"}
    assert "class ModelNew" in emitted.compiled.text
    assert_same_effects(emitted.new, emitted.original)


@pytest.mark.parametrize(
    ("model", "words", "line"),
    [
        (structure.Decides, "decides by the elements", "if x.sum() > 0:"),
        (structure.Unequal, "size depends on the elements", "return x[x > 0] * 2"),
    ],
)
def test_refused_with_the_reason_and_the_line(
    model: type[nn.Module], words: str, line: str, tmp_path: Path
) -> None:
    with pytest.raises(CaptureError, match=words) as refusal:
        emit_module(model().eval(), _call(), tmp_path)
    assert refusal.value.where is not None and refusal.value.where.text == line
    assert refusal.value.exit_code == 2


def test_a_weight_without_a_size_is_refused(tmp_path: Path) -> None:
    module = structure.Lazy().eval()
    said = "weight of submodule 'fc' has no size before the first call; give its layer sizes"
    with pytest.raises(CaptureError, match=said):
        emit_module(module, _call(), tmp_path)
    module(*_call()[0])
    assert emit_module(module, _call(), tmp_path).num_kernels == 1


@pytest.mark.parametrize("model", [structure.Normalised, structure.ReadsMode, structure.Draws])
def test_in_training_each_call_does_what_the_original_does(
    model: type[nn.Module], tmp_path: Path
) -> None:
    """Batch norm counts, dropout draws, and what the mode decides is decided anew."""
    x = torch.randn(6, 16)
    emitted = emit_module(model().eval(), ((x,), {}), tmp_path, mode="both")
    old, new = copy.deepcopy(emitted.original), emitted.new
    with training(old, new):
        for _ in range(2):
            found = []
            for module in (new, old):
                torch.manual_seed(5)
                results = tensors(module(copied(x)))
                found.append([*results, *module.buffers(), torch.rand(2)])
            assert_close(*found)
    # Back in evaluation mode the kernels run, on what training left behind.
    torch.manual_seed(5)
    ours = new(x)
    torch.manual_seed(5)
    assert_close(ours, old(x))
    assert kernels_in(lambda: new(x)) == emitted.num_kernels
