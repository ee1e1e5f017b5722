"""Emitted matrix products, host code and kernels, against float64: every call, layout and size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.behaviour.emitted import Pair, kernels_in, leaves, profiled_kernels
from tests.behaviour.products import BODIES, product_pair, text_of

MANY_ROWS = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(1024, 512)

    def forward(self, x):
        return self.fc(x).relu()


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
"""
_PAIRS: dict[str, Pair] = {}


@pytest.fixture(params=tuple(BODIES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return pair_of(request.param, tmp_path_factory)


def pair_of(name: str, folders: pytest.TempPathFactory) -> Pair:
    if name not in _PAIRS:
        _PAIRS[name] = product_pair(name, folders.mktemp("products"))
    return _PAIRS[name]


def require_near(found: object, exact: object) -> None:
    for mine, theirs in zip(leaves(found), leaves(exact), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=4e-6, atol=4e-6, equal_nan=True)


@pytest.mark.parametrize("batch", [4, 2, 19, 70])
def test_results_are_near_float64(pair: Pair, batch: int) -> None:
    original, new = pair.models()
    inputs = pair.inputs(batch)
    with torch.no_grad():
        found = new(*inputs)
        exact = original.double()(*(x.double() for x in inputs))
    require_near(found, exact)
    with torch.no_grad():
        assert kernels_in(lambda: new(*inputs)) == pair.num_kernels


@pytest.mark.parametrize("batch", [0, 1])
def test_empty_and_single_batches(pair: Pair, batch: int) -> None:
    original, new = pair.models()
    inputs = pair.inputs(batch)
    with torch.no_grad():
        require_near(new(*inputs), original.double()(*(x.double() for x in inputs)))


def test_inputs_may_have_any_strides(pair: Pair) -> None:
    original, new = pair.models()
    inputs = [
        torch.randn(*(2 * n for n in x.shape[::-1])).permute(*reversed(range(x.dim())))
        for x in pair.inputs(6)
    ]
    inputs = [x[tuple(slice(None, None, 2) for _ in x.shape)] for x in inputs]
    assert not any(x.is_contiguous() for x in inputs)
    with torch.no_grad():
        found = new(*inputs)
        assert kernels_in(lambda: new(*inputs)) == pair.num_kernels
        require_near(found, original.double()(*(x.double() for x in inputs)))


def gradients(model: torch.nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Of every parameter and input, by a sum that weighs every element differently."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    results = leaves(model(*inputs))
    weighed = sum(
        (r * torch.linspace(-1, 1, r.numel(), dtype=r.dtype).view_as(r)).sum() for r in results
    )
    wanted = [*inputs, *model.parameters()]
    return [g for g in torch.autograd.grad(weighed, wanted, allow_unused=True) if g is not None]


def test_gradients_reach_operands_weights_and_what_is_added(pair: Pair) -> None:
    original, new = pair.models()
    inputs = pair.inputs(5)
    found = gradients(new, inputs)
    exact = gradients(original.double(), [x.double() for x in inputs])
    assert len(found) == len(exact) > 2
    require_near(found, exact)


def test_torch_func_and_vmap(pair: Pair) -> None:
    original, new = pair.models()
    inputs = pair.inputs(3)
    parameters = {n: p.detach() for n, p in new.named_parameters()}

    def total(model, parameters, *inputs):
        results = torch.func.functional_call(model, parameters, inputs)
        return sum(r.square().mean() for r in leaves(results))

    found = torch.func.grad(lambda p: total(new, p, *inputs))(parameters)
    exact = torch.func.grad(lambda p: total(original, p, *inputs))(parameters)
    require_near([found[n] for n in found], [exact[n].double() for n in found])
    stacked = [torch.stack([x, -x]) for x in inputs]
    with torch.no_grad():
        both = torch.func.vmap(lambda *given: tuple(leaves(new(*given))))(*stacked)
        # One by one: vmap's own addmm reads what it should ignore.
        apart = [leaves(original(*(x[i] for x in stacked))) for i in range(2)]
    require_near(both, [torch.stack(each).double() for each in zip(*apart, strict=True)])


def test_torch_compile_takes_the_operators(pair: Pair) -> None:
    original, new = pair.models()
    inputs = pair.inputs(4)
    torch._dynamo.reset()
    compiled = torch.compile(new, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        require_near(compiled(*inputs), original.double()(*(x.double() for x in inputs)))
    torch._dynamo.reset()
    require_near(gradients(compiled, inputs), gradients(original, [x.double() for x in inputs]))


def test_under_autocast_the_library_casts(tmp_path_factory: pytest.TempPathFactory) -> None:
    pair = pair_of("tails", tmp_path_factory)
    _, new = pair.models()
    inputs = pair.inputs(4)
    assert "autocast casts its operands" not in pair.text
    assert "if _autocast is None:" in pair.text
    with torch.no_grad(), torch.autocast("cuda", enabled=False):
        assert kernels_in(lambda: new(*inputs)) == pair.num_kernels


def test_a_changed_weight_is_seen(tmp_path_factory: pytest.TempPathFactory) -> None:
    pair = pair_of("layouts", tmp_path_factory)
    original, new = pair.models()
    inputs = pair.inputs(4)
    with torch.no_grad():
        before = leaves(new(*inputs))[0]
        for model in (original, new):
            model.weight.mul_(3.0)
        found, exact = new(*inputs), original.double()(*(x.double() for x in inputs))
    require_near(found, exact)
    assert not torch.allclose(leaves(found)[0], before)


def test_weights_are_kept_unless_it_is_forbidden() -> None:
    kept, anew = (
        text_of("many_rows", MANY_ROWS, "mma", weight_cache=cache) for cache in (True, False)
    )
    for text in ("host::with_held", "stream_is_capturing", "op::HeldOperand"):
        assert text in kept and text not in anew


def test_less_precise_kernels_run_only_while_they_are_allowed(tmp_path: Path) -> None:
    torch.set_float32_matmul_precision("high")
    try:
        pair = product_pair("tails", tmp_path)
        original, new = pair.models()
        inputs = pair.inputs(4)
        assert "_kernels.allows_tf32()" in pair.text
        with torch.no_grad():
            count = pair.num_kernels + 1  # one tail has a kernel of its own
            assert kernels_in(lambda: new(*inputs)) == count
            torch._dynamo.reset()
            compiled = torch.compile(new, backend="aot_eager", fullgraph=True)
            require_near(compiled(*inputs), [x.double() for x in leaves(original(*inputs))])
            assert profiled_kernels(lambda: compiled(*inputs)) == count
            torch.set_float32_matmul_precision("highest")
            assert kernels_in(lambda: new(*inputs)) == 0
            compiled(*inputs)  # compiled anew
            assert profiled_kernels(lambda: compiled(*inputs)) == 0
            require_near(new(*inputs), [x.double() for x in leaves(original(*inputs))])
    finally:
        torch.set_float32_matmul_precision("highest")
