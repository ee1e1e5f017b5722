"""Calls that the kernels were made for: they run, and what they give is the original's."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import CountCalls, Pair, kernels_in, leaves, profiled_kernels


def assert_same(new: Any, old: Any) -> None:
    for ours, theirs in zip(leaves(new), leaves(old), strict=True):
        torch.testing.assert_close(ours, theirs, check_stride=True)


def check(pair: Pair, new: Any, old: Any, inputs: list[torch.Tensor]) -> None:
    """The results agree, and every kernel ran once."""
    with torch.no_grad():
        assert_same(new(*inputs), old(*inputs))
        assert kernels_in(lambda: new(*inputs)) == pair.num_kernels


@pytest.mark.parametrize("batch", [0, 1, 2, 7, 33, 1000])
def test_any_batch_size(pair: Pair, batch: int) -> None:
    old, new = pair.models()
    check(pair, new, old, pair.inputs(batch))


def test_too_little_memory_is_an_error_that_says_so(pair: Pair) -> None:
    """And the next call is as before."""
    old, new = pair.models()
    inputs = pair.inputs(2)
    endless = [x[:1].expand(2**40, *x.shape[1:]) for x in inputs]
    with torch.no_grad():
        for model in (old, new):
            with pytest.raises(RuntimeError, match="memory"):
                model(*endless)
    check(pair, new, old, inputs)


def _column_major(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()


def _every_second(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(2, dim=1)[:, ::2]


def _shifted(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)


def _expanded(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand(x.shape)


def _negated_lazily(x: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(x)


@pytest.mark.parametrize(
    "layout", [_column_major, _every_second, _shifted, _expanded, _negated_lazily]
)
def test_any_layout(pair: Pair, layout: Any) -> None:
    old, new = pair.models()
    check(pair, new, old, [layout(x) for x in pair.inputs()])


def test_mixed_layouts(branches: Pair) -> None:
    old, new = branches.models()
    x, skip = branches.inputs()
    check(branches, new, old, [x, _column_major(skip)])


def test_keywords_and_defaults(branches: Pair) -> None:
    old, new = branches.models()
    x, skip = branches.inputs()
    assert_same(new(skip=skip, x=x), old(x, skip))
    assert kernels_in(lambda: new(x, skip=skip)) == 1


def test_inputs_are_left_alone(pair: Pair) -> None:
    _, new = pair.models()
    inputs = pair.inputs()
    kept = [x.clone() for x in inputs]
    with torch.no_grad():
        new(*inputs)
    assert all(torch.equal(x, k) for x, k in zip(inputs, kept, strict=True))


def test_results_are_fresh(pair: Pair) -> None:
    _, new = pair.models()
    inputs = pair.inputs()
    with torch.no_grad():
        first, second = leaves(new(*inputs)), leaves(new(*inputs))
    owned = [x.data_ptr() for x in (*inputs, *new.parameters())]
    places = [x.data_ptr() for x in (*first, *second)]
    assert len({*places, *owned}) == len(places) + len(owned)


def test_inference_mode(pair: Pair) -> None:
    old, new = pair.models()
    inputs = pair.inputs()
    with torch.inference_mode():
        assert_same(new(*inputs), old(*inputs))
        assert kernels_in(lambda: new(*inputs)) == pair.num_kernels


def test_training_mode_where_it_does_not_matter(linear: Pair) -> None:
    old, new = linear.models()
    check(linear, new.train(), old.train(), linear.inputs())


def _loss(model: Any, inputs: list[torch.Tensor]) -> torch.Tensor:
    return sum((leaf * leaf.detach().cos()).sum() for leaf in leaves(model(*inputs)))


def _gradients(model: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    inputs = [x.clone().requires_grad_() for x in inputs]
    wanted = [*inputs, *(p for p in model.parameters() if p.requires_grad)]
    return list(torch.autograd.grad(_loss(model, inputs), wanted))


def test_gradients(pair: Pair) -> None:
    old, new = pair.models()
    inputs = pair.inputs()
    for ours, theirs in zip(_gradients(new, inputs), _gradients(old, inputs), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert kernels_in(lambda: _gradients(new, inputs)) == pair.num_kernels


def test_gradients_with_frozen_weights(linear: Pair) -> None:
    old, new = linear.models()
    for model in (old, new):
        model.project.weight.requires_grad_(False)
    inputs = linear.inputs()
    assert_same(_gradients(new, inputs), _gradients(old, inputs))
    assert kernels_in(lambda: _gradients(new, inputs)) == 1


def test_gradients_of_one_of_two_results(branches: Pair) -> None:
    found = []
    for model in branches.models():
        x, skip = (value.requires_grad_() for value in branches.inputs())
        gate = model(x, skip)["gate"]
        found.append(torch.autograd.grad(gate.sum(), (x, skip), allow_unused=True))
    torch.testing.assert_close(found[1][0], found[0][0])
    assert found[0][1] is None and (found[1][1] is None or not found[1][1].any())


def test_double_backward(pair: Pair) -> None:
    found = []
    for model in pair.models():
        inputs = [x.requires_grad_() for x in pair.inputs()]
        (first,) = torch.autograd.grad(_loss(model, inputs), inputs[:1], create_graph=True)
        wanted = [inputs[0], *model.parameters()]
        found.append(torch.autograd.grad(first.square().sum(), wanted, allow_unused=True))
    for theirs, ours in zip(*found, strict=True):
        expected = torch.zeros_like(ours) if theirs is None and ours is not None else theirs
        torch.testing.assert_close(ours, expected)


def test_functional_gradients(pair: Pair) -> None:
    old, new = pair.models()
    inputs = pair.inputs()

    def of_parameters(model: Any) -> Any:
        def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            call = torch.func.functional_call(model, parameters, (x, *inputs[1:]))
            return sum(leaf.sin().sum() for leaf in leaves(call))

        return torch.func.grad(loss, argnums=(0, 1))

    parameters = {name: p.detach() for name, p in new.named_parameters()}
    ours, theirs = (of_parameters(m)(parameters, inputs[0]) for m in (new, old))
    torch.testing.assert_close(ours, theirs)
    assert kernels_in(lambda: of_parameters(new)(parameters, inputs[0])) > 0


def test_vmap(pair: Pair) -> None:
    old, new = pair.models()
    stacked = [torch.stack((x, x + 1, x - 1)) for x in pair.inputs()]
    ours, theirs = torch.vmap(new)(*stacked), torch.vmap(old)(*stacked)
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        torch.testing.assert_close(a, b)
    assert kernels_in(lambda: torch.vmap(new)(*stacked)) == 3 * pair.num_kernels


def test_per_sample_gradients(pair: Pair) -> None:
    old, new = pair.models()
    stacked = [torch.stack((x, x + 1)) for x in pair.inputs()]

    def gradient(model: Any) -> Any:
        def loss(*xs: torch.Tensor) -> torch.Tensor:
            return sum(leaf.sin().sum() for leaf in leaves(model(*xs)))

        return torch.vmap(torch.func.grad(loss))

    torch.testing.assert_close(gradient(new)(*stacked), gradient(old)(*stacked))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_break(pair: Pair, dynamic: bool) -> None:
    torch._dynamo.reset()
    old, new = pair.models()
    compiled = torch.compile(new, fullgraph=True, dynamic=dynamic)
    for batch in (16, 5):
        inputs = pair.inputs(batch)
        with torch.no_grad():
            assert_same(compiled(*inputs), old(*inputs))
            assert profiled_kernels(lambda: compiled(*inputs)) == pair.num_kernels  # noqa: B023


def test_compile_with_gradients(pair: Pair) -> None:
    torch._dynamo.reset()
    old, new = pair.models()
    inputs = pair.inputs()
    compiled = torch.compile(new, fullgraph=True)
    torch.testing.assert_close(_gradients(compiled, inputs), _gradients(old, inputs))
    assert profiled_kernels(lambda: _gradients(compiled, inputs)) == pair.num_kernels


def test_operators_keep_their_promises(pair: Pair) -> None:
    _, new = pair.models()
    with CountCalls() as count:
        for inputs in (pair.inputs(), [_column_major(x) for x in pair.inputs()], pair.inputs(0)):
            new(*[x.requires_grad_() for x in inputs])
    assert len(count.ours) == 3 * pair.num_kernels
    for func, args in count.ours:
        detached = tuple(a.detach() if isinstance(a, torch.Tensor) else a for a in args)
        assert set(torch.library.opcheck(func, detached).values()) == {"SUCCESS"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_the_dtype_of_the_original(pair: Pair, dtype: torch.dtype) -> None:
    old, new = pair.models()
    inputs = pair.inputs()
    with torch.no_grad():
        exact = old(*inputs)
        with torch.autocast("cpu", dtype=dtype):
            assert kernels_in(lambda: new(*inputs)) == pair.num_kernels
            found = zip(leaves(new(*inputs)), leaves(old(*inputs)), leaves(exact), strict=True)
    assert_no_worse(found)


def assert_no_worse(found: Iterable[tuple[torch.Tensor, ...]]) -> None:
    """Triples of ours, the original's and the exact value: the same dtype, and no larger error.

    A kernel keeps float32 between 16-bit operations, so it rounds less; a quarter is for chance.
    """
    for ours, theirs, exact in found:
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        assert _error(ours, exact) <= 1.25 * _error(theirs, exact) + 1e-7


def test_gradients_under_autocast(linear: Pair) -> None:
    old, new = linear.models()
    inputs = linear.inputs()
    exact = _gradients(old, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = zip(_gradients(new, inputs), _gradients(old, inputs), exact, strict=True)
    assert_no_worse(found)


def _error(value: torch.Tensor, true: torch.Tensor) -> float:
    return float((value.double() - true.double()).square().mean().sqrt())


def test_state_dict_round_trip(pair: Pair) -> None:
    old, _ = pair.models(seed=3)
    _, new = pair.models(seed=4)
    assert list(new.state_dict()) == list(old.state_dict())
    new.load_state_dict(old.state_dict(), strict=True)
    check(pair, new, old, pair.inputs())
    old.load_state_dict(new.state_dict(), strict=True)


@pytest.mark.parametrize("fused", [False, True])
def test_follows_an_optimiser(linear: Pair, fused: bool) -> None:
    models = linear.models()
    inputs = linear.inputs()
    for model in models:
        optimiser = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
        for _ in range(3):
            optimiser.zero_grad()
            _loss(model, inputs).backward()
            optimiser.step()
    check(linear, models[1], models[0], inputs)


def test_follows_weights_changed_in_place(linear: Pair) -> None:
    old, new = linear.models()
    for model in (old, new):
        model.project.weight.data.mul_(2.0)
        model.project.bias.data = torch.full((40,), 0.25)
    check(linear, new, old, linear.inputs())


def test_same_parameters_from_the_same_seed(pair: Pair) -> None:
    old, new = pair.models(seed=11)
    for ours, theirs in zip(new.parameters(), old.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    states = []
    for cls in (pair.original.Model, pair.emitted.ModelNew):
        torch.manual_seed(5)
        cls(*pair.original.get_init_inputs())
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_deep_copy(pair: Pair) -> None:
    old, new = pair.models()
    copied = copy.deepcopy(new)
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.zero_()
    check(pair, copied, old, pair.inputs())


def test_pickle(pair: Pair) -> None:
    old, new = pair.models()
    check(pair, pickle.loads(pickle.dumps(new)), old, pair.inputs())


def test_save_and_load(pair: Pair) -> None:
    old, new = pair.models()
    file = io.BytesIO()
    torch.save(new, file)
    file.seek(0)
    check(pair, torch.load(file, weights_only=False), old, pair.inputs())


def test_adopts_a_module(pair: Pair) -> None:
    old = pair.emitted.Model(*pair.original.get_init_inputs()).eval()
    new = pair.emitted.ModelNew.adopt(old)
    assert all(a is b for a, b in zip(new.parameters(), old.parameters(), strict=True))
    check(pair, new, old, pair.inputs())
    old.train()
    assert new.training


def test_adopts_nothing_else(pair: Pair) -> None:
    with pytest.raises(TypeError, match="expected a Model, got a Linear"):
        pair.emitted.ModelNew.adopt(torch.nn.Linear(1, 1))


def test_two_threads(pair: Pair) -> None:
    old, new = pair.models()

    def run(seed: int) -> bool:
        inputs = pair.inputs(64, seed)
        with torch.no_grad():
            return all(
                torch.allclose(a, b, atol=1e-6)
                for _ in range(20)
                for a, b in zip(leaves(new(*inputs)), leaves(old(*inputs)), strict=True)
            )

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(run, range(4)))
