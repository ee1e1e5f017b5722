"""Fused reductions on the device: errors beside eager's, hard rows, layouts, the same bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import CountCalls
from tests.gpu.building import SideBySide, built_side_by_side
from tests.gpu.reduction_models import AXES, EDGES, MODELS, ROWS, Model
from tests.models.checks import shifted, turned
from torch import Tensor
from torch.utils import _pytree as pytree

from opweld.judge.numerics.compare import ErrorSums, same_bits
from opweld.judge.numerics.grade import Figures, grade
from opweld.judge.numerics.outputs import DELIVERED

pytestmark = pytest.mark.gpu

OF_ROWS = ("folds", "softmax", "logarithms", "layer norm", "rms norm", "spread")
NARROW = ("bfloat16", "float16")
EXACT = ("int64", "bool", "int64 planes")
OF_ANY_LENGTH = ("flat", "whole", "columns", "many columns", "half columns")
FLOATS = tuple(name for name, model in MODELS.items() if model.dtype != "float64")
FLOATS = tuple(name for name in FLOATS if name not in EXACT)
# Of so many errors the margins of grade A are those of chance; of fewer than `FEW` no grade's are.
ENOUGH, FEW = 1000, 32
SUMS = ("sum", "mean")
REDUCING = set("sum mean amax amin max min argmax argmin any all var std norm prod".split())
REDUCING |= set("softmax _softmax log_softmax _log_softmax logsumexp native_layer_norm".split())
REDUCING |= set("native_group_norm mse_loss kl_div linalg_vector_norm".split())
REDUCING |= {
    f"{name}_pool{n}d{end}"
    for name in ("max", "avg")
    for n in (1, 2, 3)
    for end in ("", "_with_indices")
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    sources = {name: model.source for name, model in MODELS.items()}
    with built_side_by_side(sources, tmp_path_factory) as modules:
        yield modules


def parts(results: Sequence[dict[str, Any]], model: Model) -> Iterator[tuple[str, Tensor]]:
    """Every tensor, with what it is of."""
    for shape, forms in zip(model.shapes, results, strict=True):
        for name, value in forms.items():
            for tensor in value if isinstance(value, tuple) else (value,):
                yield f"{name} of {shape}", tensor


def eagers(module: ModuleType, args: Sequence[Tensor]) -> list[dict[str, Any]]:
    """What the original gives; on the CPU where it knows no such type on the device."""
    try:
        results: list[dict[str, Any]] = module._Original()(*args)
        return results
    except NotImplementedError:
        found = module._Original()(*(x.cpu() for x in args))
        return pytree.tree_map_only(Tensor, lambda x: x.to(args[0].device), found)


def pairs(
    module: ModuleType, model: Model, args: Sequence[Tensor]
) -> list[tuple[str, Tensor, Tensor]]:
    """Our results beside eager's."""
    with torch.no_grad():
        ours = list(parts(module.ModelNew()(*args), model))
        theirs = list(parts(eagers(module, args), model))
    for (label, new), (_, eager) in zip(ours, theirs, strict=True):
        assert (new.dtype, new.shape) == (eager.dtype, eager.shape), label
    return [(label, new, eager) for (label, new), (_, eager) in zip(ours, theirs, strict=True)]


class Graded:
    """Errors beside eager's, gathered over calls; integers must be eager's."""

    def __init__(self, module: ModuleType, model: Model) -> None:
        self.module, self.model = module, model
        self.sums = dict[str, ErrorSums]()
        self.unequal = set[str]()

    def add(self, args: Sequence[Tensor]) -> None:
        with torch.no_grad():
            exact = self.module._Original()(*(x.double() for x in args))
        truths = parts(exact, self.model)
        found = pairs(self.module, self.model, args)
        for (label, new, eager), (_, truth) in zip(found, truths, strict=True):
            if eager.is_floating_point():
                sums = self.sums.setdefault(label, ErrorSums(eager.dtype))
                sums.add(new, eager, truth)
            elif not torch.equal(new, eager):
                self.unequal.add(label)

    def require(self) -> None:
        """Sums as exact as eager's where enough of them were seen, all else as is delivered."""
        bad = sorted(self.unequal)
        for label, sums in self.sums.items():
            figures = sums.figures()
            if not _is_exact(label, figures):
                ratio = figures.rms / max(figures.eager_rms, 1e-300)
                grades = f"grade {grade(figures)}, {ratio:.2f} times eager's error"
                bad.append(f"{label}: {grades} ({figures})")
        assert not bad, "\n".join(bad)


def _is_exact(label: str, figures: Figures) -> bool:
    if figures.count < FEW:
        near = figures.rms <= 32 * (figures.eager_rms + figures.half_ulp_rms)
        return near and not figures.num_special_wrong
    return grade(figures) in ("A" if _is_sum(label) and figures.count >= ENOUGH else DELIVERED)


def _is_sum(label: str) -> bool:
    return label.split(" of ")[0] in (*SUMS, *AXES)


@pytest.mark.parametrize("name", [n for n in FLOATS if n not in OF_ANY_LENGTH])
def test_errors_are_no_larger_than_those_of_eager(built: SideBySide, name: str) -> None:
    """For any number of rows; of losses, which are single numbers, and sums over rows, few as well,
    for many draws.
    """
    model = MODELS[name]
    graded = Graded(built[name], model)
    for rows in ROWS:
        graded.add(model.draw(rows))
    if name in ("losses", "soft labels"):
        for seed in range(32):
            graded.add(model.draw(37, seed))
    if name == "axes":
        for seed in range(1, 9):
            graded.add(model.draw(ROWS[-1], seed))
    graded.require()


def lengths_of(name: str) -> list[int]:
    """Those whose tensors and their float64 copies take a few GB."""
    width = sum(math.prod(shape) for shape in MODELS[name].shapes)
    return [length for length in EDGES if length * width <= 2**28]


CASES = [(name, length) for name in OF_ANY_LENGTH for length in lengths_of(name)]


@pytest.mark.parametrize(("name", "length"), CASES)
def test_rows_of_any_length(built: SideBySide, name: str, length: int) -> None:
    model = MODELS[name]
    graded = Graded(built[name], model)
    # All errors of the softmax of one column are that of its sum: one column says nothing.
    for seed in range(32 if model.shapes == ((),) else 6 if (1,) in model.shapes else 2):
        graded.add(model.draw(length, seed))
    graded.require()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", EXACT)
def test_integers_are_eagers(built: SideBySide, name: str, rows: int) -> None:
    model = MODELS[name]
    for label, new, eager in pairs(built[name], model, model.draw(rows)):
        assert torch.equal(new, eager), label


@pytest.mark.parametrize("rows", ROWS)
def test_double_precision(built: SideBySide, rows: int) -> None:
    model = MODELS["float64"]
    for label, new, eager in pairs(built["float64"], model, model.draw(rows)):
        torch.testing.assert_close(new, eager, rtol=1e-11, atol=1e-11, msg=label, equal_nan=True)


def hard_rows(length: int, dtype: torch.dtype) -> Tensor:
    """Rows with NaN, infinities, zeros of both signs, ties and huge elements in several places."""
    nan, inf = math.nan, math.inf
    huge = min(0.9 * torch.finfo(dtype).max, 1e15)
    middle, last = length // 2, length - 1
    placed = [{at: nan} for at in (0, middle, last)] + [{at: inf} for at in (0, middle, last)]
    placed += [{0: -inf}, {0: inf, last: -inf}, {middle: inf, last: nan}, {0: nan, last: nan}]
    placed += [{middle: huge}, {last: -huge}, {0: 9.0, middle: 9.0, last: 9.0}]
    rows = torch.randn(len(placed), length, device="cuda").to(dtype)
    for row, values in enumerate(placed):
        for at, value in values.items():
            rows[row, at] = value
    alike = torch.tensor([0.1, 0.0, -0.0, inf, -inf, nan, huge / length], device="cuda").to(dtype)
    signs = (torch.arange(length, device="cuda") % 2 * -0.0).to(dtype)
    return torch.cat([rows, alike[:, None].expand(-1, length), signs[None]])


CLOSE = {
    torch.float32: {"rtol": 2e-5, "atol": 1e-4},
    torch.bfloat16: {"rtol": 2e-2, "atol": 1e-2},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
    torch.float64: {"rtol": 1e-11, "atol": 1e-10},
}


def require_close(label: str, new: Tensor, eager: Tensor) -> None:
    if not eager.is_floating_point():
        assert torch.equal(new, eager), label
        return
    limits = CLOSE[eager.dtype]
    torch.testing.assert_close(
        new, eager, **limits, equal_nan=True, msg=lambda text: f"{label}: {text}"
    )


@pytest.mark.parametrize("name", (*OF_ROWS, *NARROW, "float64"))
def test_hard_rows(built: SideBySide, name: str) -> None:
    """NaN and infinities where eager has them, places of the first extreme or the first NaN.

    Or where a float64 run on the CPU has them, and its values: torch 2.11 on CUDA makes all of a
    row with an infinity NaN in rms_norm, where all but the infinity is 0, and gives a row of equal
    huge elements a variance in layer_norm.
    """
    model = MODELS[name]
    torch.manual_seed(5)
    args = [hard_rows(length, getattr(torch, model.dtype)) for (length,) in model.shapes]
    with torch.no_grad():
        exact = dict(parts(built[name]._Original()(*(x.double().cpu() for x in args)), model))
    for label, new, eager in pairs(built[name], model, args):
        if eager.is_floating_point():
            right = torch.isclose(new, exact[label].to(new), **CLOSE[new.dtype], equal_nan=True)
            eager = torch.where(right, new, eager)
        require_close(label, new, eager)


def every_second(x: Tensor) -> Tensor:
    return torch.stack((x, torch.zeros_like(x)), -1)[..., 0]


LAYOUTS = {"turned": turned, "misaligned": shifted, "every second": every_second}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_layouts(built: SideBySide, name: str, layout: str) -> None:
    model = MODELS[name]
    args = [LAYOUTS[layout](x) for x in model.draw(4100 if model.example > 24 else 132)]
    if name in FLOATS:
        graded = Graded(built[name], model)
        graded.add(args)
        graded.require()
    for label, new, eager in pairs(built[name], model, args):
        require_close(label, new, eager)


@pytest.mark.parametrize("name", MODELS)
def test_no_reduction_is_left_to_the_library(built: SideBySide, name: str) -> None:
    model = MODELS[name]
    args = model.draw(132)
    with CountCalls() as count, torch.no_grad():
        built[name].ModelNew()(*args)
    assert count.ours
    left = {call for call in count.others if call.split(".")[1] in REDUCING}
    assert not left


def require_same_bits(model: Model, found: list[Any], first: list[Any]) -> None:
    for (label, ours), (_, before) in zip(parts(found, model), parts(first, model), strict=True):
        assert same_bits(ours, before), label


@pytest.mark.parametrize("name", MODELS)
def test_bits_are_the_same_in_every_run(built: SideBySide, name: str) -> None:
    """Again, into memory that held something else, on another stream, and when replayed."""
    model, new = MODELS[name], built[name].ModelNew()
    args = model.draw(100003 if name == "flat" else 264)

    with torch.no_grad():
        first = new(*args)
        for _ in range(4):
            junk = [torch.full_like(tensor, 77) for _, tensor in parts(first, model)]
            del junk
            require_same_bits(model, new(*args), first)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            on_side = new(*args)
        torch.cuda.current_stream().wait_stream(side)
        require_same_bits(model, on_side, first)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = new(*args)
        for _ in range(3):
            for _, tensor in parts(replayed, model):
                tensor.fill_(77)
            graph.replay()
            torch.cuda.synchronize()
            require_same_bits(model, replayed, first)


@pytest.mark.parametrize("name", ["spread", "layer norm", "columns", "norms"])
def test_a_large_mean_costs_no_digits(built: SideBySide, name: str) -> None:
    """Data with a mean of 1e6 and a deviation of 1: the formula of squares would lose all."""
    model, module = MODELS[name], built[name]
    graded = Graded(module, model)
    for seed in range(2):
        graded.add([x + 1e6 for x in model.draw(264, seed)])
    graded.require()


OF_DIFFERENCES = ("var", "std", "layer_norm", "group_norm", "instance_norm")


@pytest.mark.parametrize("name", ["spread", "layer norm", "columns", "norms"])
@pytest.mark.parametrize("value", [0.1, 1e15 / 31, 1e33])
def test_constant_rows_have_no_variance(built: SideBySide, name: str, value: float) -> None:
    """All that is left of them is exactly 0, as with eager."""
    model, new = MODELS[name], built[name].ModelNew()
    args = [torch.full_like(x, value) for x in model.draw(264)]
    with torch.no_grad():
        found = list(parts(new(*args), model))
    zeros = [(label, each) for label, each in found if label.split()[0] in OF_DIFFERENCES]
    assert zeros
    assert not [label for label, each in zeros if each.any()]


def weights(result: Tensor) -> Tensor:
    """A different factor for each element."""
    return torch.cos(torch.arange(result.numel()).to(result)).view(result.shape)


@pytest.mark.parametrize("name", ["softmax", "losses", "norms", "planes"])
def test_gradients_are_those_of_eager(built: SideBySide, name: str) -> None:
    model, module = MODELS[name], built[name]
    args = [x.requires_grad_() for x in model.draw(37)]
    grads = []
    for module_of in (module.ModelNew, module._Original):
        results = [result for _, result in parts(module_of()(*args), model)]
        loss = sum((result * weights(result)).sum() for result in results)
        grads.append(torch.autograd.grad(loss, args))
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))
