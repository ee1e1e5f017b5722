"""PyTorch's own sample inputs through compiled kernels: values in each type, gradients in float32.

Many operators share one emitted file, so that a build serves dozens of them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in, load_file
from tests.capturing import tolerance
from torch import nn
from torch.utils import _pytree as pytree

from opweld.capture import capture
from opweld.emit import emit
from opweld.ir.graph import arena_of
from opweld.ir.original import Original, Part
from opweld.ir.plan import GroupKind
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.host.texts import host
from opweld.render.libraries import libraries
from opweld.simplify import simplify
from opweld.target import CPU

if importlib.util.find_spec("expecttest") is None:
    pytest.skip("torch's operator database needs expecttest", allow_module_level=True)

from tests.cpu.test_opinfo import Sample, pointwise, samples_of, table

OPS_A_FILE = 40
NUM_SAMPLES = {torch.float32: 2, torch.float16: 1, torch.bfloat16: 1, torch.float64: 1}
NUM_SAMPLES[torch.int64] = 1
# Functions whose float32 result eager computes with more error than assert_close allows for.
LOOSE = {"rtol": 1e-5, "atol": 1e-5}


@dataclass(frozen=True)
class Use:
    """One operator on one sample."""

    op: Any
    sample: Sample

    def __call__(self, tensors: Iterator[torch.Tensor]) -> Any:
        leaves = self.sample.leaves
        fresh = [next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        x, args, kwargs = pytree.tree_unflatten(fresh, self.sample.spec)
        return self.op.op(x, *args, **kwargs)

    @property
    def differentiable(self) -> bool:
        return bool(self.op.supports_autograd) and self.sample.dtype is torch.float32


def fused_uses(ops: list[Any]) -> list[Use]:
    """The samples of which the coverage table says that they are fused."""
    recorded = table()
    found = []
    for op in ops:
        for dtype, count in NUM_SAMPLES.items():
            row = recorded.get((op.formatted_name, str(dtype).removeprefix("torch.")))
            if row is not None and row.status == "fused":
                samples = [s for s in samples_of(op, dtype) if s.tensors][:count]
                found += [Use(op, sample) for sample in samples]
    return found


def module_of(name: str, uses: list[Use]) -> nn.Module:
    """A module with all uses in its forward, of a class that an emitted file can import."""

    def forward(self: nn.Module, *tensors: torch.Tensor) -> list[Any]:
        remaining = iter(tensors)
        return [use(remaining) for use in uses]

    cls = type(name, (nn.Module,), {"forward": forward, "__module__": __name__})
    globals()[name] = cls
    return cls().eval()


def emitted_text(module: nn.Module, tensors: list[torch.Tensor]) -> str:
    """The line at fixed sizes and without autocast."""
    name = type(module).__name__
    captured = capture(module, tuple(tensors), {}, name=name, batch=False)
    (variant,) = captured.variants
    plan = make_plan(simplify(variant.graph, arena_of(variant.graph)).graph, CPU)
    assert any(group.kind is GroupKind.POINTWISE for group in plan.groups)
    parts = (Part(variant, plan, lower(plan)),)
    source = render(name, parts[0].kernels, "c++")
    original = Original(f"{name}.py", __name__, name, None)
    return emit(original, parts, libraries(source, host(parts, "c++")), "Operators.")


@dataclass(frozen=True)
class File:
    """Operators in one emitted file: their uses, and both modules."""

    uses: list[Use]
    original: nn.Module
    new: nn.Module

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [tensor.detach() for use in self.uses for tensor in use.sample.tensors]


NAMES = [op.formatted_name for op in pointwise()]
STARTS = range(0, len(NAMES), OPS_A_FILE)


# builds some thirty libraries
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=STARTS, ids=lambda start: NAMES[start])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> File:
    start = request.param
    uses = fused_uses(pointwise()[start : start + OPS_A_FILE])
    original = module_of(f"Operators{start}", uses)
    folder = tmp_path_factory.mktemp("operators")
    tensors = [tensor for use in uses for tensor in use.sample.tensors]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
        emitted = load_file(folder / f"operators_{start}.py", emitted_text(original, tensors))
    return File(uses, original, emitted.ModelNew())


def failures(file: File, new: list[Any], old: list[Any], compare: Callable[..., None]) -> list[str]:
    """What differs, one line a use."""
    found = []
    for use, ours, theirs in zip(file.uses, new, old, strict=True):
        pairs = zip(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), strict=True)
        for one, other in pairs:
            try:
                compare(one, other)
            except AssertionError as error:
                what = f"{use.op.formatted_name} of {use.sample.dtype}"
                found.append(f"{what}: {' '.join(str(error).split())[:200]}")
    return found


def assert_value(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    limits = tolerance(theirs.dtype) or (LOOSE if theirs.dtype is torch.float32 else {})
    torch.testing.assert_close(ours, theirs, equal_nan=True, **limits)


def test_values(file: File) -> None:
    with torch.no_grad():
        new, old = file.new(*file.tensors), file.original(*file.tensors)
        assert kernels_in(lambda: file.new(*file.tensors)) >= 1
    assert failures(file, new, old, assert_value) == []


def test_gradients(file: File) -> None:
    new, old = (_gradients(file, module) for module in (file.new, file.original))
    assert failures(file, new, old, _assert_gradient) == []
    assert any(gradient is not None for gradients in old for gradient in gradients)


def _gradients(file: File, module: nn.Module) -> list[list[torch.Tensor | None]]:
    """For each use, the gradients of its float32 tensors; none for one without a derivative."""
    asked = [use.differentiable for use in file.uses for _ in use.sample.tensors]
    tensors = [
        t.clone().requires_grad_(ask and t.is_floating_point())
        for t, ask in zip(file.tensors, asked, strict=True)
    ]
    results = [pytree.tree_leaves(result) for result in module(*tensors)]
    remaining, found = iter(tensors), []
    for use, leaves in zip(file.uses, results, strict=True):
        own = [next(remaining) for _ in use.sample.tensors]
        found.append(_gradient(leaves, own) if use.differentiable else [])
    return found


def _gradient(results: list[Any], tensors: list[torch.Tensor]) -> list[torch.Tensor | None]:
    wanted = [t for t in tensors if t.requires_grad]
    given = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    if not wanted or not given:
        return [None] * len(wanted)
    weights = [torch.linspace(0.5, 1.5, r.numel()).reshape(r.shape) for r in given]
    return list(torch.autograd.grad(given, wanted, weights, retain_graph=True, allow_unused=True))


def _assert_gradient(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> None:
    """Gradient 0 may be given as none."""
    if ours is None or theirs is None:
        assert all(g is None or not g.any() for g in (ours, theirs)), "one side has no gradient"
        return
    torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=1e-5)
