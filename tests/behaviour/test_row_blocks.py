"""Emitted files whose products run in row blocks, on the CPU, against float64."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.behaviour.emitted import CountCalls, Pair, leaves
from tests.behaviour.row_blocks import BODIES, ROWS, row_blocks_pair

_PAIRS: dict[str, Pair] = {}


def pair_of(name: str, folders: pytest.TempPathFactory) -> Pair:
    if name not in _PAIRS:
        _PAIRS[name] = row_blocks_pair(name, folders.mktemp("row_blocks"))
    return _PAIRS[name]


# Each is built, which takes ten seconds.
QUICK = ("tails", "calls")


@pytest.fixture(
    params=[n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in BODIES]
)
def pair(
    request: pytest.FixtureRequest, build_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Pair:
    return pair_of(request.param, tmp_path_factory)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def inputs_of(pair: Pair, batch: int | None = None) -> list[torch.Tensor]:
    dtype = torch.float64 if pair.name == "double" else torch.float32
    return [x.to(dtype) for x in pair.inputs(batch)]


def exact(original: torch.nn.Module, inputs: list[torch.Tensor]) -> object:
    """What float64 makes of the same numbers."""
    return original.double()(*(x.double() for x in inputs))


def require_near(found: object, wanted: object) -> None:
    for mine, theirs in zip(leaves(found), leaves(wanted), strict=True):
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=4e-6, atol=4e-6)


def names_of(count: CountCalls) -> list[str]:
    return [func.overloadpacket.__name__ for func, _ in count.ours]


def products_of(model: torch.nn.Module, inputs: list[torch.Tensor]) -> int:
    """How many products a call without gradients runs in row blocks; it must run nothing else."""
    with torch.no_grad(), CountCalls() as count:
        model(*inputs)
    assert not any("mm" in name or "linear" in name for name in count.others)
    return len(count.ours)


# Below 256 rows a thread the product is made whole; above, blocks of 64 rows at most are as even
# as can be.
SIZES = (0, 1, ROWS - 1, ROWS, ROWS + 1, 255, 256, 257, 511, 512, 513, 512 + ROWS, 1000)


@pytest.mark.parametrize("batch", SIZES)
def test_results_are_near_float64(pair: Pair, threads: int, batch: int) -> None:
    original, new = pair.models()
    inputs = inputs_of(pair, batch)
    assert products_of(new, inputs) == pair.num_kernels
    with torch.no_grad():
        found = new(*inputs)
        require_near(found, exact(original, inputs))
    assert all(result.is_contiguous() for result in leaves(found))


@pytest.mark.parametrize("batch", [6, 600])
def test_inputs_may_have_any_strides(pair: Pair, batch: int) -> None:
    original, new = pair.models()
    inputs = [
        torch.randn(*(2 * n for n in x.shape[::-1]), dtype=x.dtype).permute(
            *reversed(range(x.dim()))
        )
        for x in inputs_of(pair, batch)
    ]
    inputs = [x[tuple(slice(None, None, 2) for _ in x.shape)] for x in inputs]
    assert not any(x.is_contiguous() for x in inputs if x.numel() > batch)
    assert products_of(new, inputs) == pair.num_kernels
    with torch.no_grad():
        require_near(new(*inputs), exact(original, inputs))


def test_an_expanded_activation_and_a_strided_weight(
    build_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pair = pair_of("chain", tmp_path_factory)
    original, new = pair.models()
    x, *others = inputs_of(pair, 700)
    inputs = [x[:1].expand(700, -1), *others]
    spread = torch.randn(80, 48)[::2, ::2]
    for model in (original, new):
        model.fc.weight = torch.nn.Parameter(spread)
    assert products_of(new, inputs) == pair.num_kernels
    with torch.no_grad():
        require_near(new(*inputs), exact(original, inputs))


def gradients(model: torch.nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Of every parameter and input, by a sum that weighs every element differently."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    results = [r for r in leaves(model(*inputs)) if r.is_floating_point()]
    weighed = sum(
        (r * torch.linspace(-1, 1, r.numel(), dtype=r.dtype).view_as(r)).sum() for r in results
    )
    wanted = [*inputs, *model.parameters()]
    return [g for g in torch.autograd.grad(weighed, wanted, allow_unused=True) if g is not None]


def test_gradients_run_the_product_once_and_keep_it(pair: Pair) -> None:
    original, new = pair.models()
    inputs = inputs_of(pair, 70)
    with CountCalls() as count:
        found = gradients(new, inputs)
    assert len([n for n in count.others if "aten.addmm" in n or "aten.mm" in n]) <= (
        3 * pair.num_kernels
    )
    wanted = gradients(original.double(), [x.double() for x in inputs])
    assert len(found) == len(wanted) > 2
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=2e-5, atol=2e-5)


def test_torch_func_and_vmap(pair: Pair) -> None:
    original, new = pair.models()
    inputs = inputs_of(pair, 3)
    parameters = {n: p.detach() for n, p in new.named_parameters()}

    def total(model, parameters, *inputs):
        results = leaves(torch.func.functional_call(model, parameters, inputs))
        return sum(r.square().mean() for r in results if r.is_floating_point())

    found = torch.func.grad(lambda p: total(new, p, *inputs))(parameters)
    wanted = torch.func.grad(lambda p: total(original, p, *inputs))(parameters)
    require_near([found[n] for n in found], [wanted[n] for n in found])
    stacked = [torch.stack([x, -x]) for x in inputs]
    with torch.no_grad():
        both = torch.func.vmap(lambda *given: tuple(leaves(new(*given))))(*stacked)
        apart = [leaves(original(*(x[i] for x in stacked))) for i in range(2)]
    require_near(both, [torch.stack(each) for each in zip(*apart, strict=True)])


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_takes_the_whole_forward(pair: Pair, dynamic: bool) -> None:
    original, new = pair.models()
    inputs = inputs_of(pair, 4)
    torch._dynamo.reset()
    compiled = torch.compile(new, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        require_near(compiled(*inputs), original(*inputs))
    require_near(gradients(compiled, inputs), gradients(original, inputs))


def test_the_operators_pass_opcheck(pair: Pair) -> None:
    _, new = pair.models()
    with torch.no_grad(), CountCalls() as count:
        new(*inputs_of(pair, 5))
    assert len(count.ours) == pair.num_kernels
    for func, args in count.ours:
        given = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args]
        torch.library.opcheck(func, tuple(given))


def test_under_autocast_the_library_casts(
    build_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pair = pair_of("tails", tmp_path_factory)
    original, new = pair.models()
    inputs = inputs_of(pair, 600)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), CountCalls() as count:
        found, _ = new(*inputs)
    assert not any("linear" in name for name in names_of(count))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted, _ = original(*inputs)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_weights_are_read_at_each_call(
    build_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pair = pair_of("tails", tmp_path_factory)
    original, new = pair.models()
    inputs = inputs_of(pair, 600)
    with torch.no_grad():
        new(*inputs)
        for model in (original, new):
            model.fc.weight.data.mul_(3.0)
        require_near(new(*inputs), exact(original, inputs))
