"""Calls that the kernels were not made for: the original runs, and no kernel does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in, leaves
from tests.behaviour.replaying import compiled
from torch.nn.utils import parametrize, prune

Change = Callable[[Any], Any]


def check(new: Any, old: Any, inputs: list[Any]) -> None:
    """The same bits as the original's, and no kernel."""
    with torch.no_grad():
        for ours, theirs in zip(leaves(new(*inputs)), leaves(old(*inputs)), strict=True):
            assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype
        assert kernels_in(lambda: new(*inputs)) == 0


def check_changed(pair: Pair, change: Change) -> None:
    """Both models are changed in the same way. Unchanged, the kernels do run."""
    old, new = pair.models()
    assert kernels_in(lambda: new(*pair.inputs())) == pair.num_kernels
    for model in (old, new):
        change(model)
    check(new, old, pair.inputs())


def test_other_dtype(pair: Pair) -> None:
    old, new = (model.double() for model in pair.models())
    check(new, old, [x.double() for x in pair.inputs()])


def test_other_rank(pair: Pair) -> None:
    old, new = pair.models()
    check(new, old, [x[None] for x in pair.inputs()])


def test_other_fixed_size(gelu: Pair) -> None:
    old, new = gelu.models()
    check(new, old, [torch.randn(16, 95)])


def test_sizes_that_disagree(branches: Pair) -> None:
    old, new = branches.models()
    x, skip = branches.inputs()
    check(new, old, [x, skip[:1]])


def test_other_device(gelu: Pair) -> None:
    _, new = gelu.models()
    assert new(torch.randn(4, 96, device="meta")).device.type == "meta"


def test_tensor_subclass(pair: Pair) -> None:
    class Named(torch.Tensor):
        pass

    old, new = pair.models()
    inputs = [x.as_subclass(Named) for x in pair.inputs()]
    check(new, old, inputs)
    assert all(isinstance(leaf, Named) for leaf in leaves(new(*inputs)))


def test_subclassed_parameter(linear: Pair) -> None:
    class Named(torch.Tensor):
        pass

    def change(model: Any) -> None:
        weight = model.project.weight.detach().as_subclass(Named)
        del model.project.weight
        model.project.weight = weight

    check_changed(linear, change)


def test_constructor_value(linear: Pair) -> None:
    torch.manual_seed(0)
    old = linear.original.Model(24, 40, 0.25).eval()
    torch.manual_seed(0)
    new = linear.emitted.ModelNew(24, 40, 0.25).eval()
    check(new, old, linear.inputs())


def test_constructor_value_that_changes_shapes(linear: Pair) -> None:
    torch.manual_seed(0)
    old = linear.original.Model(24, 48).eval()
    torch.manual_seed(0)
    new = linear.emitted.ModelNew(24, 48).eval()
    check(new, old, linear.inputs())


def _set_scale(model: Any) -> None:
    model.scale = 0.75


def _set_scale_of_another_type(model: Any) -> None:
    model.scale = torch.tensor(0.5)


def _replace_by_a_subclass(model: Any) -> None:
    class Doubling(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    replacement = Doubling(24, 40)
    replacement.load_state_dict(model.project.state_dict())
    model.project = replacement


def _replace_by_a_sequence(model: Any) -> None:
    model.project = torch.nn.Sequential(copy.deepcopy(model.project), torch.nn.ReLU())


def _forward_hook(model: Any) -> None:
    model.project.register_forward_hook(lambda module, args, out: out + 1)


def _forward_pre_hook(model: Any) -> None:
    model.project.register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def _backward_hook(model: Any) -> None:
    model.project.register_full_backward_hook(lambda module, grads, outs: None)


def _backward_pre_hook(model: Any) -> None:
    model.project.register_full_backward_pre_hook(lambda module, grads: None)


def _own_forward(model: Any) -> None:
    whole = model.project.forward
    model.project.forward = lambda x: whole(x) * 3


class _Halved(torch.nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight / 2


def _parametrization(model: Any) -> None:
    parametrize.register_parametrization(model.project, "weight", _Halved())


def _weight_norm(model: Any) -> None:
    torch.nn.utils.parametrizations.weight_norm(model.project)


def _pruning(model: Any) -> None:
    prune.l1_unstructured(model.project, "weight", amount=0.5)


def _other_weight_shape(model: Any) -> None:
    model.project.weight = torch.nn.Parameter(model.project.weight.detach()[:1].clone())
    model.project.bias = torch.nn.Parameter(model.project.bias.detach()[:1].clone())


def _no_bias(model: Any) -> None:
    model.project.bias = None


@pytest.mark.parametrize(
    "change",
    [
        _set_scale,
        _set_scale_of_another_type,
        _replace_by_a_subclass,
        _replace_by_a_sequence,
        _forward_hook,
        _forward_pre_hook,
        _backward_hook,
        _backward_pre_hook,
        _own_forward,
        _parametrization,
        _weight_norm,
        _pruning,
        _other_weight_shape,
        _no_bias,
    ],
)
def test_changed_model(linear: Pair, change: Change) -> None:
    check_changed(linear, change)


def test_missing_submodule_raises_as_the_original(linear: Pair) -> None:
    messages = []
    for model in linear.models():
        del model.project
        with pytest.raises(AttributeError) as error:
            model(*linear.inputs())
        messages.append(str(error.value).replace("ModelNew", "Model"))
    assert messages[0] == messages[1]


def test_global_hook(linear: Pair) -> None:
    old, new = linear.models()
    seen = []
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, args, out: seen.append(type(module).__name__)
    )
    try:
        check(new, old, linear.inputs())
    finally:
        handle.remove()
    assert seen.count("Linear") == 3


def test_hook_of_the_model_itself_sees_the_kernels_result(linear: Pair) -> None:
    _, new = linear.models()
    new.register_forward_hook(lambda module, args, out: out + 10)
    old, _ = linear.models()
    inputs = linear.inputs()
    with torch.no_grad():
        torch.testing.assert_close(new(*inputs), old(*inputs) + 10)
        assert kernels_in(lambda: new(*inputs)) == 1


def test_live_dropout(branches: Pair) -> None:
    """Training has kernels of its own; what is drawn is the original's."""
    results = []
    for model in branches.models():
        model.train()
        torch.manual_seed(7)
        results.append(model(*branches.inputs()))
        state = torch.get_rng_state()
        results.append(state)
    torch.testing.assert_close(results[0]["sum"], results[2]["sum"])
    assert torch.equal(results[1], results[3])


def test_subclass_of_the_new_class(linear: Pair) -> None:
    class Mine(linear.emitted.ModelNew):  # type: ignore[name-defined, misc]
        pass

    torch.manual_seed(0)
    old, _ = linear.models()
    torch.manual_seed(0)
    check(Mine(24, 40).eval(), old, linear.inputs())


def test_forward_mode_differentiation(pair: Pair) -> None:
    old, new = pair.models()
    inputs = tuple(pair.inputs())
    tangents = tuple(torch.ones_like(x) for x in inputs)
    ours = torch.func.jvp(new, inputs, tangents)
    theirs = torch.func.jvp(old, inputs, tangents)
    for a, b in zip(ours, theirs, strict=True):
        for x, y in zip(leaves(a), leaves(b), strict=True):
            assert torch.equal(x, y) and x.any()


def test_sparse_input(gelu: Pair) -> None:
    _, new = gelu.models()
    old, _ = gelu.models()
    x = torch.eye(96).to_sparse()
    messages = []
    for model in (old, new):
        with pytest.raises(Exception) as error:
            model(x)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_not_a_tensor_raises_as_the_original(linear: Pair) -> None:
    messages = []
    for model in linear.models():
        with pytest.raises(TypeError) as error:
            model([1.0, 2.0])
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_original_compiles_too(linear: Pair, dynamic: bool) -> None:
    torch._dynamo.reset()
    old, new = (model.double() for model in linear.models())
    (x,) = linear.inputs()
    compiled = torch.compile(new, fullgraph=True, dynamic=dynamic)
    torch.testing.assert_close(compiled(x.double()), old(x.double()))


DRAWING = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.dropout = nn.Linear(6, 6), nn.Dropout(0.5)

    def forward(self, x):
        return torch.tanh(self.dropout(self.inner(x))) * 2.0


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return []
"""


def test_weights_in_another_order_where_random_numbers_go_by_it(
    build_folder: Path, tmp_path: Path
) -> None:
    """Also after a call whose check is remembered: nothing but the strides has changed since."""
    file = compiled(tmp_path, DRAWING, target="cpu", mode="training")
    assert "contiguous=True" in Path(str(file.__file__)).read_text("utf-8")
    model, x = file.ModelNew(), torch.randn(4, 6)
    with torch.no_grad():
        assert [kernels_in(lambda: model(x)) for _ in range(3)] == [1, 1, 1]
        weight = model.inner.weight
        for data, kernels in ((weight.data.t().contiguous().t(), 0), (weight.data.clone(), 1)):
            weight.data = data
            assert [kernels_in(lambda: model(x)) for _ in range(3)] == [kernels] * 3
