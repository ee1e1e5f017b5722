"""What is checked of every model that must be fused, on any device."""

from __future__ import annotations

from typing import Any

import torch
from tests.behaviour.emitted import kernels_in
from tests.models.cases import BATCH, Call, Case
from tests.models.comparing import (
    assert_close,
    assert_graded,
    assert_same_form,
    assert_same_gradients,
    run,
    tensors,
    trained_results,
)
from tests.models.emitted import Emitted
from torch.utils import _pytree as pytree


def arguments(case: Case, batch: int, seed: int, device: torch.device) -> Call:
    torch.manual_seed(seed)
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), case.call(batch))


def check_model(case: Case, emitted: Emitted) -> None:
    """All of it."""
    assert emitted.num_ops >= case.ops
    assert 0 < emitted.num_kernels <= case.kernels + emitted.num_products
    check_call(case, emitted)
    check_batches(case, emitted)
    check_layouts(case, emitted)
    if case.gradients:
        check_gradients(case, emitted)


def check_call(case: Case, emitted: Emitted) -> None:
    """The captured batch size: every kernel runs, the form is eager's, the numbers are graded."""
    args, kwargs = arguments(case, BATCH, 2, emitted.device)
    with torch.no_grad():
        ours = run(emitted.new, args, kwargs)
        theirs = run(emitted.original, args, kwargs)
        assert kernels_in(lambda: run(emitted.new, args, kwargs)) == emitted.num_kernels
        assert_same_form(emitted.new(*args, **kwargs), emitted.original(*args, **kwargs))
        if case.draws:
            assert_close(ours, theirs)
        else:
            assert_graded(ours, theirs, emitted.original, args, kwargs)
        check_every_element_is_written(emitted, args, kwargs, ours)


def check_every_element_is_written(emitted: Emitted, args: Any, kwargs: Any, first: Any) -> None:
    """Results in memory that held something else before are the same, to the bit."""
    junk = [torch.full_like(t, 77, memory_format=torch.contiguous_format) for t in tensors(first)]
    del junk
    again = run(emitted.new, args, kwargs)
    for one, other in zip(tensors(first), tensors(again), strict=True):
        assert torch.equal(one.nan_to_num(nan=0.5), other.nan_to_num(nan=0.5))


def check_batches(case: Case, emitted: Emitted) -> None:
    """Other batch sizes: the same kernels run, none and one among them."""
    for batch in case.batches:
        args, kwargs = arguments(case, batch, 3 + batch, emitted.device)
        with torch.no_grad():
            ours = run(emitted.new, args, kwargs)
            theirs = run(emitted.original, args, kwargs)
            assert_same_form(ours, theirs)
            assert_close(ours, theirs, case.coarse)
            ran = kernels_in(lambda: run(emitted.new, args, kwargs))  # noqa: B023
        assert ran == emitted.num_kernels, f"at batch {batch}"


def check_layouts(case: Case, emitted: Emitted) -> None:
    """Inputs that begin off a vector's boundary, and inputs with other strides. Generators deal
    numbers along memory: the original draws for tensors that are not row-major.
    """
    given = arguments(case, BATCH, 5, emitted.device)
    for change in (shifted, turned):
        args, kwargs = pytree.tree_map_only(torch.Tensor, change, given)
        with torch.no_grad():
            torch.manual_seed(6)
            ours = emitted.new(*args, **kwargs)
            torch.manual_seed(6)
            assert_close(ours, emitted.original(*args, **kwargs), case.coarse)
            ran = kernels_in(lambda: emitted.new(*args, **kwargs))  # noqa: B023
        original = change is turned and case.draws
        assert ran == (0 if original else emitted.num_kernels), change.__name__


def shifted(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, one element further in memory."""
    return torch.cat((tensor.new_zeros(1), tensor.flatten()))[1:].view(tensor.shape)


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, the last two axes swapped in memory."""
    return tensor.mT.contiguous().mT if tensor.dim() >= 2 else tensor


def check_gradients(case: Case, emitted: Emitted) -> None:
    args, kwargs = arguments(case, BATCH, 2, emitted.device)
    ours, theirs = (trained_results(m, args, kwargs) for m in (emitted.new, emitted.original))
    assert ours == theirs
    assert_same_gradients(emitted.new, emitted.original, args, kwargs, case.coarse)
