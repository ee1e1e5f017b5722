"""What a fused module gives, beside the original and a float64 run of it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from tests.capturing import tolerance
from torch import nn
from torch.utils import _pytree as pytree

from opweld.judge.load import Call
from opweld.judge.numerics.compare import ErrorSums
from opweld.judge.numerics.grade import grade
from opweld.judge.numerics.outputs import DELIVERED
from opweld.judge.numerics.precision import FLOAT64, NoReference

SEED = 7


def copied(value: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, value)


def run(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """One call on copies of the arguments, with the same random numbers each time."""
    torch.manual_seed(SEED)
    return module(*copied(args), **copied(kwargs))


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def assert_same_form(new: Any, old: Any) -> None:
    """Structure, numbers, and of every tensor its type, its order and its place in memory."""
    assert pytree.tree_structure(new) == pytree.tree_structure(old)
    for ours, theirs in zip(pytree.tree_leaves(new), pytree.tree_leaves(old), strict=True):
        assert type(ours) is type(theirs)
        if not isinstance(theirs, torch.Tensor):
            assert ours == theirs
            continue
        assert (ours.dtype, ours.device, ours.shape) == (theirs.dtype, theirs.device, theirs.shape)
        assert _orders(ours) >= _orders(theirs) or theirs.numel() == 0
    assert _sharing(new) == _sharing(old)


def _orders(tensor: torch.Tensor) -> set[torch.memory_format]:
    """The orders in memory that a caller may count on."""
    formats = [torch.contiguous_format, *([torch.channels_last] if tensor.dim() == 4 else [])]
    return {f for f in formats if tensor.is_contiguous(memory_format=f)}


def _sharing(value: Any) -> list[int]:
    """For each tensor, the first one that has the same memory, and the first that is the same."""
    found = [leaf for leaf in tensors(value) if leaf.numel()]
    places = [leaf.untyped_storage().data_ptr() for leaf in found]
    objects = [id(leaf) for leaf in found]
    return [places.index(p) for p in places] + [objects.index(o) for o in objects]


def assert_close(new: Any, old: Any, coarse: bool = False) -> None:
    """With `coarse`, floats are compared as 16-bit ones."""
    for ours, theirs in zip(tensors(new), tensors(old), strict=True):
        limits = _tolerance(torch.bfloat16 if coarse else theirs.dtype)
        limits = limits if theirs.is_floating_point() else {}
        torch.testing.assert_close(ours, theirs, equal_nan=True, **limits)


def _tolerance(dtype: torch.dtype) -> dict[str, float]:
    """In float32 some elements of a long computation lose a few ulps more than the default."""
    loose = {"rtol": 2e-5, "atol": 2e-6} if dtype is torch.float32 else {}
    return {**loose, **tolerance(dtype)}


def assert_graded(new: Any, old: Any, module: nn.Module, args: Any, kwargs: Any) -> None:
    """Integers and bools are eager's; floats are about as near to the float64 run as eager's."""
    exact = float64_run(module, args, kwargs)
    for ours, theirs, truth in zip(tensors(new), tensors(old), exact, strict=True):
        if not theirs.is_floating_point():
            assert torch.equal(ours, theirs)
        elif theirs.dtype is torch.float64 or truth is None:
            assert_close(ours, theirs)
        else:
            assert_delivered(ours, theirs, truth)


def assert_delivered(new: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor) -> None:
    sums = ErrorSums(eager.dtype)
    sums.add(new, eager, truth)
    figures = sums.figures()
    assert grade(figures) in DELIVERED, figures


def float64_run(module: nn.Module, args: Any, kwargs: Any) -> list[torch.Tensor | None]:
    """The tensors of a float64 run; None where it has no float64 tensor in that place."""
    call = Call(copied(args), copied(kwargs)).map(FLOAT64.tensor)
    with contextlib.suppress(NoReference):
        torch.manual_seed(SEED)
        found = tensors(FLOAT64.run(FLOAT64.model(module), call, SEED))
        return [t if t.dtype is torch.float64 or not t.is_floating_point() else None for t in found]
    return [None] * len(tensors(run(module, args, kwargs)))


def gradients(module: nn.Module, args: Any, kwargs: Any) -> list[torch.Tensor | None]:
    """Of every floating-point argument and parameter, for a loss that reads every result."""
    module = copy.deepcopy(module)
    wanted = [p for p in module.parameters() if p.requires_grad]

    def leaf(value: torch.Tensor) -> torch.Tensor:
        fresh = value.detach().clone()
        if fresh.is_floating_point():
            wanted.append(fresh.requires_grad_())
        return fresh

    args, kwargs = pytree.tree_map_only(torch.Tensor, leaf, (args, kwargs))
    torch.manual_seed(SEED)
    results = [r for r in tensors(module(*args, **kwargs)) if r.requires_grad]
    loss = sum((r.double() * _weights(r)).sum() for r in results)
    return list(torch.autograd.grad(loss, wanted, allow_unused=True))


def trained_results(module: nn.Module, args: Any, kwargs: Any) -> list[bool]:
    """Which results have a gradient when only the parameters ask for one."""
    return [result.requires_grad for result in tensors(run(module, args, kwargs))]


def _weights(result: torch.Tensor) -> torch.Tensor:
    """A different factor for each element."""
    positions = torch.arange(result.numel(), device=result.device, dtype=torch.float64)
    return torch.cos(positions).reshape(result.shape)


def assert_same_gradients(
    new: nn.Module, old: nn.Module, args: Any, kwargs: Any, coarse: bool = False
) -> None:
    """Eager's gradients; where they differ by more than roundings, as near float64 as eager's."""
    found, wanted = gradients(new, args, kwargs), gradients(old, args, kwargs)
    exact: list[torch.Tensor | None] | None = None
    for place, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert (ours is None) == (theirs is None)
        if ours is None or theirs is None:
            continue
        scale = float(theirs.detach().double().abs().max()) if theirs.numel() else 0.0
        limits = _tolerance(torch.bfloat16 if coarse else theirs.dtype)
        limits = limits or {"rtol": 1e-7, "atol": 1e-7}
        limits["atol"] = max(limits["atol"], limits["rtol"] * scale)
        try:
            torch.testing.assert_close(ours, theirs, equal_nan=True, **limits)
        except AssertionError:
            if theirs.dtype is not torch.float32:
                raise
            exact = exact or _exact_gradients(old, args, kwargs)
            value = exact[place]
            assert value is not None
            off, usual = ((each.double() - value).abs().max() for each in (ours, theirs))
            if not off <= usual:
                raise


def _exact_gradients(module: nn.Module, args: Any, kwargs: Any) -> list[torch.Tensor | None]:
    """Those of float64, of the same random numbers if any are drawn."""
    call = Call(copied(args), copied(kwargs)).map(FLOAT64.tensor)
    return gradients(FLOAT64.model(copy.deepcopy(module)), call.args, call.kwargs)


@contextlib.contextmanager
def training(*modules: nn.Module) -> Iterator[None]:
    for module in modules:
        module.train()
    yield
    for module in modules:
        module.eval()
