"""Convolutions of ours on the device: errors beside eager's, layouts, weights that change, CUDA
graphs, gradients.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from tests.gpu.building import SideBySide, built_side_by_side
from tests.gpu.convolution_models import MODELS
from tests.gpu.emitting import all_convolutions_ours, cuda_of
from torch import Tensor, nn

from opweld.judge.numerics.effective import CONVOLUTIONS, Lowered

pytestmark = pytest.mark.gpu

# Results of the graph, which kernels write in the order that eager gives them.
RETURNED = {
    f"{name}, returned": MODELS[name].replace("return y.sum(1),", "return y, #")
    for name in (
        "3 by 3", "odd", "pointwise", "strided line", "volume", "stem", "transposed",
        "odd transposed", "transposed volume",
    )
}  # fmt: skip
MODELS |= RETURNED
FAITHFUL = (
    "odd", "layers", "strided line", "layers of a volume", "odd transposed", "decoder", "stem",
    "large patches", "odd, returned",
)  # fmt: skip


@contextlib.contextmanager
def as_exact_as_float32() -> Iterator[None]:
    """While torch's flag forbids TF32 in convolutions."""
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = True


@contextlib.contextmanager
def faithful_convolutions_ours() -> Iterator[None]:
    with all_convolutions_ours(), as_exact_as_float32():
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, SideBySide]]:
    """By whether TF32 is allowed."""
    exact = {name: MODELS[name] for name in FAITHFUL}
    with (
        built_side_by_side(MODELS, tmp_path_factory, all_convolutions_ours) as loose,
        built_side_by_side(exact, tmp_path_factory, faithful_convolutions_ours) as faithful,
    ):
        yield {True: loose, False: faithful}


def models(module: ModuleType) -> tuple[nn.Module, nn.Module]:
    """The new one and the original, with the same weights, on the device."""
    torch.manual_seed(0)
    new = module.ModelNew().cuda().eval()
    old = module._Original().cuda().eval()
    old.load_state_dict(new.state_dict())
    return new, old


def inputs_of(module: ModuleType, batch: int | None = None, seed: int = 1) -> Tensor:
    (example,) = module.get_inputs()
    torch.manual_seed(seed)
    shape = (len(example) if batch is None else batch, *example.shape[1:])
    return torch.randn(shape, device="cuda")


def results(run: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        found: tuple[Tensor, ...] = run(x)
    return found


def with_channels_last(x: Tensor) -> Tensor:
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def half_ulp(value: Tensor) -> float:
    exponents = torch.floor(torch.log2(value.abs().double().clamp_min(2.0**-126)))
    return torch.exp2(exponents - 24).square().mean().sqrt().item()


def exactly(old: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    exact = results(old.double(), x.double())
    old.float()
    return exact


def require_as_exact_as_eager(new: nn.Module, old: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """Grade A (judge/numerics/grade.py): rms within 5 %, largest 1.5 times, plus half an ulp. Where
    flags allow TF32, eager's errors or those of convolutions rounded to it, as for the judge.
    """
    poison(x.device)
    found, exact = results(new, x), exactly(old, x)
    standards = [results(old, x), *([rounded(old, x)] if tf32() else [])]
    for place, (mine, right) in enumerate(zip(found, exact, strict=True)):
        ulp = half_ulp(right)
        off = (mine.double() - right).abs()
        others = [(each[place].double() - right).abs() for each in standards]
        # Tensor cores cut sums off towards zero: means of many lean there.
        margin = 1.05 if tf32() or place != MEAN else 2.0
        limit = max(map(rms, others))
        assert rms(off) <= margin * limit + ulp, (place, rms(off), limit, ulp)
        largest = max(each.max().item() for each in others)
        assert off.max() <= max(margin, 1.5) * largest + 4 * ulp, (place, off.max(), largest, ulp)
    return found


MEAN = 2  # among the results of a model


def tf32() -> bool:
    return bool(torch.backends.cudnn.allow_tf32)


def rms(errors: Tensor) -> float:
    return errors.square().mean().sqrt().item()


def rounded(old: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    with Lowered(CONVOLUTIONS) as mode:
        found = results(old, x)
    assert mode.acted
    return found


def poison(device: torch.device) -> None:
    """Leaves NaN in the memory that the next call will take."""
    lent = [torch.full((2**22,), math.nan, device=device) for _ in range(8)]
    lent += [torch.full((n,), math.nan, device=device) for n in range(256, 2**18, 4096)]
    del lent


@pytest.mark.parametrize("name", MODELS)
class TestErrors:
    def test_are_no_larger_than_eagers(self, built: dict[bool, SideBySide], name: str) -> None:
        module = built[True][name]
        assert re.search(
            r"op::((Window|Joined)Tiles<op::Tf32|(OneTap|Halo)Tiles<\d)", cuda_of(module)
        )
        new, old = models(module)
        found = require_as_exact_as_eager(new, old, inputs_of(module))
        # They are kernels of 11 bits, and no others.
        exact = exactly(old, inputs_of(module))
        assert (found[0].double() - exact[0]).abs().max() > 1e-6 * exact[0].abs().max()

    @pytest.mark.parametrize("batch", [1, 2, 7])
    def test_in_any_batch(self, built: dict[bool, SideBySide], name: str, batch: int) -> None:
        module = built[True][name]
        require_as_exact_as_eager(*models(module), inputs_of(module, batch))

    def test_with_channels_last(self, built: dict[bool, SideBySide], name: str) -> None:
        module = built[True][name]
        new, old = models(module)
        x = inputs_of(module)
        first = results(new, x)
        last = results(new, with_channels_last(x))
        assert all(map(torch.equal, first, last))
        for weight in new.parameters():
            weight.data = with_channels_last(weight.data) if weight.dim() > 2 else weight.data
        assert all(map(torch.equal, first, results(new, x)))
        require_as_exact_as_eager(new, old, with_channels_last(x))


@pytest.mark.parametrize("name", FAITHFUL)
def test_without_tf32_they_are_as_exact_as_float32(
    built: dict[bool, SideBySide], name: str
) -> None:
    module = built[False][name]
    assert re.search("op::(Window|Joined)Tiles<op::Faithful", cuda_of(module))
    new, old = models(module)
    with as_exact_as_float32():
        for batch in (1, 5):
            require_as_exact_as_eager(new, old, inputs_of(module, batch))


@pytest.mark.parametrize("name", RETURNED)
def test_output_strides_match_eager(built: dict[bool, SideBySide], name: str) -> None:
    module = built[True][name]
    assert "op::Permuted<" in cuda_of(module)
    new, old = models(module)
    x = inputs_of(module)
    for each in (x, with_channels_last(x)) if x.dim() == 4 else (x,):
        (found,), (eager,) = results(new, each), results(old, each)
        assert found.shape == eager.shape and found.stride() == eager.stride()


def test_tf32_is_used_only_while_the_flag_allows_it(built: dict[bool, SideBySide]) -> None:
    module = built[True]["layers"]
    new, old = models(module)
    x = inputs_of(module)
    loose = results(new, x)
    with as_exact_as_float32():
        found, eager = results(new, x), results(old, x)
    assert all(map(torch.equal, found, eager))
    assert not torch.equal(loose[0], found[0])


@pytest.mark.parametrize("name", ["3 by 3", "many channels", "layers", "decoder"])
def test_equal_calls_give_equal_bits(built: dict[bool, SideBySide], name: str) -> None:
    module = built[True][name]
    new, _ = models(module)
    x = inputs_of(module)
    first = results(new, x)
    for _ in range(200):
        assert all(map(torch.equal, results(new, x), first))


def test_in_a_cuda_graph(built: dict[bool, SideBySide]) -> None:
    module = built[True]["layers"]
    new, _ = models(module)
    x = inputs_of(module)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        results(new, x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        captured = new(x)
    for seed in (2, 3):
        x.copy_(inputs_of(module, seed=seed))
        with torch.no_grad():
            new.b.weight.data.mul_(-1.25)
        graph.replay()
        replayed = [y.clone() for y in captured]
        assert all(map(torch.equal, replayed, results(new, x)))


def by_data(weight: Tensor) -> None:
    weight.data.mul_(-1.5)


def by_one_element(weight: Tensor) -> None:
    with torch.no_grad():
        weight[3, 5, 1, 2] += 7.0


def by_assignment(weight: Tensor) -> None:
    weight.data = torch.randn_like(weight) * 0.1


def by_a_fused_step(weight: Tensor) -> None:
    weight.grad = torch.randn_like(weight)
    torch.optim.AdamW([weight], lr=0.1, fused=True).step()


CHANGES: tuple[Callable[[Tensor], None], ...] = (
    *(by_data, by_one_element, by_assignment, by_a_fused_step),
)


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_change_are_seen(
    built: dict[bool, SideBySide], change: Callable[[Tensor], None]
) -> None:
    module = built[True]["layers"]
    new, old = models(module)
    x = inputs_of(module)
    before = results(new, x)
    for _ in range(2):
        change(new.b.weight)
        old.load_state_dict(new.state_dict())
        after = require_as_exact_as_eager(new, old, x)
        assert not torch.equal(before[0], after[0])
        before = after


def test_weights_of_another_model_are_its_own(built: dict[bool, SideBySide]) -> None:
    module = built[True]["layers"]
    first, _ = models(module)
    second = module.ModelNew().cuda().eval()
    x = inputs_of(module)
    alone = [results(each, x) for each in (first, second)]
    for _ in range(3):
        for each, expected in zip((first, second), alone, strict=True):
            assert all(map(torch.equal, results(each, x), expected))


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["strided", "transposed", "phases without taps"])
def test_what_is_not_finite_comes_out_as_eagers(
    built: dict[bool, SideBySide], name: str, odd: float
) -> None:
    module = built[True][name]
    new, old = models(module)
    x = inputs_of(module)
    x[1, 40, 7, 9] = odd
    found, eager = results(new, x), results(old, x)
    for mine, theirs in zip(found, eager, strict=True):
        assert torch.equal(mine.isnan(), theirs.isnan())
        assert torch.equal(mine.isinf(), theirs.isinf())
        finite = theirs.isfinite()
        torch.testing.assert_close(mine[finite], theirs[finite], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**60, 2.0**100])
def test_values_of_any_size(built: dict[bool, SideBySide], scale: float) -> None:
    module = built[True]["3 by 3"]
    new, old = models(module)
    x = inputs_of(module) * scale
    require_as_exact_as_eager(new, old, x)


def test_a_huge_channel_hides_no_others(built: dict[bool, SideBySide]) -> None:
    module = built[True]["3 by 3"]
    new, old = models(module)
    x = inputs_of(module)
    x[:, 5] = 2.0**40
    with torch.no_grad():
        new.a.weight[:, 5] = 0
    old.load_state_dict(new.state_dict())
    require_as_exact_as_eager(new, old, x)


@pytest.mark.parametrize("name", ["strided", "layers"])
def test_gradients(built: dict[bool, SideBySide], name: str) -> None:
    module = built[True][name]
    new, old = models(module)
    x = inputs_of(module)
    found = gradients(new, x)
    eager = gradients(old, x)
    with Lowered(CONVOLUTIONS):
        marks = gradients(old, x)
    exact = gradients(old.double(), x.double())
    for mine, theirs, mark, right in zip(found, eager, marks, exact, strict=True):
        off, *others = ((y.double() - right).norm().item() for y in (mine, theirs, mark))
        assert off <= 1.5 * max(others) + 1e-6 * right.norm().item(), (off, others)


def gradients(run: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    first, second, third = run(x)
    loss = first.square().mean() + second.mean() + third.square().sum()
    return list(torch.autograd.grad(loss, [x, *run.parameters()]))
