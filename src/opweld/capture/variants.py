"""Which captures are made, and what their comparison tells: sizes, modes, autocast, dtypes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.utils import _pytree as pytree

from opweld.errors import CaptureError, OriginalKept
from opweld.ir.contract import Capture, Needs, Variant
from opweld.ir.graph import Graph

from .arguments import Arguments, bind
from .dtypes import FROM_TORCH
from .exporting.autocast import AUTOCAST, autocast_acts, autocast_lowers, without_library_casts
from .exporting.export import NeedsFixedSizes
from .loops.counting import LongLoop, leaving_long_loops
from .loops.rolled import rolled
from .loops.short import at_length
from .modules.contracts import contract_of, without_unused
from .modules.facts import recording
from .modules.modes import surely_differ
from .modules.preserve import BOTH, EVAL, OWN, TRAINING, flags_in
from .specialise import canonical
from .task import Axes, InMode, Task, asked_axes, batched_inputs, widest

_NONE: frozenset[str] = frozenset()


_Found = tuple[tuple[Variant, ...], tuple[tuple[str, str], ...]]


def capture_variants(
    module: nn.Module,
    arguments: Arguments,
    *,
    name: str,
    batch: bool,
    needs: Needs,
    given_back: frozenset[str] = _NONE,
) -> Capture:
    """The capture in each state that is needed and differs. A loop that export writes out is a loop
    again, and a long one is captured at a few steps. Raises CaptureError.
    """
    if not arguments.tensors:
        raise CaptureError("none of the inputs is a tensor", next_step="give at least one tensor")

    def captured(arguments: Arguments) -> Capture:
        return _captured(Task(module, arguments, name, given_back, needs), batch)

    try:
        with leaving_long_loops():
            return _with_loops(captured(arguments))
    except LongLoop as left:
        loop = left
    mode = OWN if needs.mode == BOTH else needs.mode
    short = partial(_with_loops, long=True)
    found = at_length(module, mode, arguments, lambda call: short(captured(call)), loop)
    return found or _with_loops(captured(arguments))


def _with_loops(capture: Capture, long: bool = False) -> Capture:
    """With loops for the turns that export wrote out; they stand for `long` ones, maybe."""
    variants = (replace(each, graph=rolled(each.graph, long)) for each in capture.variants)
    return replace(capture, variants=tuple(variants))


def _captured(task: Task, batch: bool) -> Capture:
    arguments, needs = task.arguments, task.needs
    candidates = (batched_inputs(arguments) if batch else frozenset()) | asked_axes(
        arguments, needs.dynamic
    )
    variants, kept = _in_modes(task, candidates)
    for dtype in needs.dtypes:
        more, refused = _in_dtype(task, dtype, candidates)
        variants, kept = (*variants, *more), (*kept, *refused)
    return Capture(task.name, variants, kept)


def _in_modes(task: Task, candidates: Axes) -> _Found:
    if task.needs.mode == BOTH:
        return _both_modes(task, candidates)
    try:
        return _one_mode(replace(task, mode=task.needs.mode), candidates)
    except CaptureError as error:
        if task.needs.mode == OWN and task.module.training and _captures(task, EVAL, candidates):
            error.next_step = "opweld optimize --mode eval makes kernels for eval mode"
        raise


def _captures(task: Task, mode: str, candidates: Axes) -> bool:
    try:
        _in_mode(replace(task, mode=mode), candidates)
    except (CaptureError, NeedsFixedSizes):
        return False
    return True


def _in_dtype(task: Task, label: str, candidates: Axes) -> _Found:
    """The variants of the same module and call with floating tensors of another dtype."""
    dtype, given = getattr(torch, label), (task.arguments.args, task.arguments.kwargs)
    tensors = (*task.module.parameters(), *(leaf.value for leaf in task.arguments.tensors))
    if all(each.dtype is dtype for each in tensors if each.is_floating_point()):
        return (), ()
    try:
        module = copy.deepcopy(task.module).to(dtype)
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: _converted(t, dtype), given)
        needs = replace(task.needs, autocast=())
        arguments = bind(module, args, kwargs)
        converted = replace(task, module=module, arguments=arguments, needs=needs, dtype=label)
        return _in_modes(converted, candidates)
    except (CaptureError, NeedsFixedSizes, RuntimeError) as error:
        return (), ((label, str(error)),)


def _converted(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)


def _one_mode(task: Task, candidates: Axes) -> _Found:
    """One mode; the other is captured too where the two may be one computation."""
    plain = _in_mode(task, candidates)
    return _with_equal_mode(plain) or _states(plain, plain.flags)


def _with_equal_mode(plain: InMode) -> _Found | None:
    """The variants of the mode where those are right in the other one as well, else None."""
    if not plain.readers:
        return _states(plain, {})
    module, opposite = plain.task.module, _opposite(plain)
    try:
        flags = flags_in(module, opposite)
        if surely_differ(module, plain.readers, plain.flags, flags):
            return None
        other = _in_mode(replace(plain.task, mode=opposite), plain.dynamic)
    except (CaptureError, NeedsFixedSizes):
        return None
    return _states_of_both(plain, other) if _alike(other, plain) else None


def _both_modes(task: Task, candidates: Axes) -> _Found:
    """Both modes, that of the module first; one variant where they are one computation."""
    modes = (TRAINING, EVAL) if task.module.training else (EVAL, TRAINING)
    try:
        plain = _in_mode(replace(task, mode=modes[0]), candidates)
    except CaptureError as error:
        variants, kept = _one_mode(replace(task, mode=modes[1]), candidates)
        return variants, (*kept, (modes[0], str(error)))
    if not plain.readers:
        return _states(plain, {})
    variants, kept = _states(plain, plain.flags)
    try:
        other = _in_mode(replace(task, mode=modes[1]), plain.dynamic)
    except (CaptureError, NeedsFixedSizes) as error:
        return variants, (*kept, (modes[1], str(error)))
    if _alike(other, plain):
        return _states_of_both(plain, other)
    others, kept_too = _states(other, other.flags, other_mode=True)
    return (*variants, *others), (*kept, *kept_too)


def _opposite(mode: InMode) -> str:
    return EVAL if mode.flags[""] else TRAINING


def _alike(left: InMode, right: InMode) -> bool:
    """Whether two captures have the same results and the same gradients."""
    same = canonical(left.exported.graph) == canonical(right.exported.graph)
    return same and left.exported.own_gradients == right.exported.own_gradients


def _states_of_both(plain: InMode, other: InMode) -> _Found:
    """One graph for both modes; what has one flag in both must keep it."""
    flags = {p: flag for p, flag in plain.flags.items() if other.flags.get(p) is flag}
    return _states(replace(plain, reads=plain.reads.joined(other.reads)), flags)


def _in_mode(task: Task, candidates: Axes) -> InMode:
    flags = flags_in(task.module, task.mode)
    with recording(task.module) as reads:
        exported, dynamic, fixed = widest(task, candidates)
    if reads.writes:
        raise OriginalKept(f"the forward assigns to self.{reads.writes[0]}")
    task = replace(task, assigned=frozenset(reads.assigned))
    exported = task.assigning(exported)
    changed = exported.graph.changed_in_place & exported.differentiable
    if changed:
        raise OriginalKept(f"the forward gives {min(changed)}, a buffer, a gradient")
    return InMode(task, exported, dynamic, reads, flags, fixed)


def _states(mode: InMode, flags: Mapping[str, bool], other_mode: bool = False) -> _Found:
    """The variants of one mode: without autocast, and under each autocast that is asked for and
    makes another.
    """
    plain = Variant(
        mode.task.name,
        None,
        without_unused(mode.exported.graph),
        contract_of(mode, flags),
        training=mode.flags[""],
        other_mode=other_mode,
        dtype=mode.task.dtype,
    )
    plain = replace(plain, name=plain.state or plain.name)
    said = mode.exported.own_gradients
    kept = [(_joined(plain.state, "with gradients"), said)] if said else []
    kept += [(_joined(plain.state, "other sizes"), mode.fixed)] if mode.fixed else []
    others, also = [], []
    for label, dtype in AUTOCAST.items():
        named = replace(plain, autocast=label)
        try:
            graph = _under_autocast(mode, plain.graph, label, dtype)
        except (CaptureError, NeedsFixedSizes) as error:
            kept += [(named.state, str(error))] if label in mode.task.needs.autocast else []
            continue  # under this autocast the original runs
        if graph is plain.graph:
            also.append(label)
        elif graph is not None:
            others.append(replace(named, name=named.state, graph=graph))
    return (replace(plain, also=tuple(also)), *others), tuple(kept)


def _joined(*states: str) -> str:
    return ", ".join(filter(None, states))


def _under_autocast(mode: InMode, plain: Graph, label: str, dtype: torch.dtype) -> Graph | None:
    """The graph under autocast, which may be the plain one; None where it is another one that
    nobody asked for.
    """
    task = mode.task
    if not autocast_acts(plain, task.arguments.tensors[0].value.device.type):
        return plain
    asked = label in task.needs.autocast
    if not asked and autocast_lowers(plain):
        return None
    graph = without_unused(task.export(mode.dynamic, autocast=dtype).graph)
    if canonical(graph) == canonical(plain):
        return plain
    return without_library_casts(graph, FROM_TORCH[dtype]) if asked else None
