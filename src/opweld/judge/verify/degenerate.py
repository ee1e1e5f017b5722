"""Models whose output does not depend on what they are given, and the operation that is to blame.

A softmax over an axis of size 1, a clamp that everything exceeds, a mean subtracted from itself:
such a model can be "computed" by returning a constant. It is found by running the original in
float64 on other inputs and with other weights: where the output moves by no more than the error
that eager makes anyway, there is nothing to be judged.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.judge.load import Call
from opweld.judge.numerics.compare import same_bits
from opweld.judge.numerics.outputs import is_float
from opweld.judge.numerics.precision import FLOAT64, NoReference
from opweld.judge.tree import leaves, tensors
from opweld.judge.verify.weights import copy_state, load_state, shake_state

# A float64 operation that gives the same up to this much of its operands' size gives the same.
SAME = 1e-12
# Inputs beyond which none is tried alone.
MAX_INPUTS = 8
_SAMPLES = 4096


@dataclass(frozen=True, slots=True)
class Variation:
    """How one output moves: root mean squares in float64, and eager's error beside them.

    `by_inputs` and `by_weights` are how far other inputs and other weights move it (None where
    there are none), `spread` its largest distance from its first element.
    """

    name: str
    error: float
    by_inputs: float
    by_weights: float | None
    spread: float
    first: float
    count: int = 2


@dataclass(frozen=True, slots=True)
class Step:
    """One operation that ran: which steps made its operands, and samples of all values in it."""

    op: str
    line: int | None
    operands: tuple[tuple[int | None, Tensor], ...]
    results: tuple[Tensor, ...]


def clause(variation: Variation) -> str | None:
    """What is degenerate about an output, without what causes it; None for an ordinary one."""
    floor = variation.error
    if variation.by_inputs <= floor and variation.spread <= floor and variation.count > 1:
        constant = 0.0 if abs(variation.first) <= floor else variation.first
        return f"{variation.name} is the constant {constant:.6g} for any inputs"
    if variation.by_inputs <= floor:
        return f"{variation.name} does not depend on the inputs"
    if variation.by_weights is not None and variation.by_weights <= floor:
        return f"{variation.name} does not depend on the weights"
    return None


def examine(
    model: nn.Module, calls: Sequence[Call], seed: int, path: Path, eager: Sequence[Any]
) -> str | None:
    """One sentence on the first degenerate output, or None.

    `calls` are two or more inputs, `eager` the leaves of the original's outputs for the first of
    them. The model must be deterministic, and is left as it was.

    Raises:
        NoReference: it does not run in float64.
    """
    wide = FLOAT64.model(model)
    first = _outputs(wide, calls[0], seed)
    differing = _differing(calls)
    others = [outputs for call in differing if (outputs := _tried(wide, call, seed))]
    moved = _with_other_weights(wide, calls[0], seed)
    for position, (name, value) in enumerate(first.items()):
        variation = _variation(
            name,
            value,
            eager[position],
            [found.get(name) for found in others],
            None if moved is None else moved.get(name),
        )
        if variation is None or not (found := clause(variation)):
            continue
        if "weights" in found:
            return found
        cause = blame(wide, (calls[0], differing[0]), seed, path, position)
        return f"{found}: {cause}" if cause else found
    return _unused_input(wide, calls[0], differing[:1], first, seed)


def _unused_input(
    wide: nn.Module, call: Call, others: Sequence[Call], first: dict[str, Any], seed: int
) -> str | None:
    """The first of several floating-point inputs that no output depends on, to the bit."""
    given = call.tensors()
    if not others or not 1 < len(given) <= MAX_INPUTS:
        return None
    for position, (mine, theirs) in enumerate(zip(given, others[0].tensors(), strict=True)):
        if not is_float(mine) or mine.shape != theirs.shape or torch.equal(mine, theirs):
            continue
        numbers = itertools.count()
        mixed = call.map(lambda t: theirs if next(numbers) == position else t)  # noqa: B023
        outputs = _tried(wide, mixed, seed)
        if outputs and all(_same_leaf(leaf, first[name]) for name, leaf in outputs.items()):
            return f"no output depends on input {position}"
    return None


def _differing(calls: Sequence[Call]) -> list[Call]:
    """The calls that differ from the first; none where an input is the same in all of them.

    Inputs that other draws leave as they are, such as indices, are turned by one element, so that
    they stay in range.
    """
    first = calls[0].tensors()
    same = [
        all(torch.equal(t, call.tensors()[position]) for call in calls[1:])
        for position, t in enumerate(first)
    ]
    numbers = itertools.count()
    turned = calls[-1].map(
        lambda t: t.reshape(-1).roll(1).view(t.shape) if same[next(numbers)] else t
    )
    pairs = zip(turned.tensors(), first, same, strict=True)
    if any(unvaried and torch.equal(a, b) for a, b, unvaried in pairs):
        return []
    candidates = [*calls[1:], turned] if any(same) else calls[1:]
    return [call for call in candidates if not _same_tensors(call, calls[0])]


def _same_leaf(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return left.shape == right.shape and same_bits(left, right)
    return bool(left == right)


def _same_tensors(left: Call, right: Call) -> bool:
    pairs = zip(left.tensors(), right.tensors(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def _variation(
    name: str, value: Any, eager: Any, others: list[Any], moved: Any
) -> Variation | None:
    """None for what is no dense tensor of real, finite numbers of one shape in all runs."""
    compared = [value, eager, *others] + ([] if moved is None else [moved])
    if not all(isinstance(t, Tensor) and t.shape == value.shape for t in compared):
        return None
    if any(t.is_complex() or t.layout is not torch.strided for t in compared) or not value.numel():
        return None
    if not all(bool(t.isfinite().all()) for t in compared):
        return None
    first = value.reshape(-1)[0]
    return Variation(
        name,
        error=_distance(eager, value),
        by_inputs=max((_distance(other, value) for other in others), default=math.inf),
        by_weights=None if moved is None else _distance(moved, value),
        spread=_distance(value, first),
        first=float(first),
        count=value.numel(),
    )


def _distance(left: Tensor, right: Tensor) -> float:
    return float((left.double() - right.double()).square().mean().sqrt())


def _outputs(wide: nn.Module, call: Call, seed: int) -> dict[str, Any]:
    outputs = FLOAT64.run(wide, call.map(FLOAT64.fresh), seed)
    return {f"output{path}": leaf for path, leaf in leaves(outputs)}


def _tried(wide: nn.Module, call: Call, seed: int) -> dict[str, Any] | None:
    """The outputs for inputs that the model may refuse."""
    try:
        return _outputs(wide, call, seed)
    except NoReference:
        return None


def _with_other_weights(wide: nn.Module, call: Call, seed: int) -> dict[str, Any] | None:
    """The outputs under other weights; None for a model without any."""
    state = copy_state(wide)
    if not any(is_float(t) and t.numel() for t in state.values()):
        return None
    load_state(wide, shake_state(state, seed))
    outputs = _tried(wide, call, seed)
    load_state(wide, state)
    return outputs


def blame(
    wide: nn.Module, calls: Sequence[Call], seed: int, path: Path, position: int
) -> str | None:
    """The operation from which on an output is the same for two inputs: its name and its line.

    Found backwards from the output: the operation with equal results and unequal operands.
    """
    runs = [_record(wide, call, seed, path) for call in calls[:2]]
    (steps, ends), (others, _) = runs
    if [s.op for s in steps] != [s.op for s in others] or position >= len(ends):
        return None
    pending, seen = [ends[position]], set()
    while pending:
        index = pending.pop()
        if index is None or index in seen:
            continue
        seen.add(index)
        step, other = steps[index], others[index]
        pairs = zip(step.operands, other.operands, strict=True)
        if any(not _alike(a, b, a) for (_, a), (_, b) in pairs):
            return _described(step, path)
        pending += [producer for producer, _ in step.operands]
    return None


def _described(step: Step, path: Path) -> str:
    place = f" at {path.name}:{step.line}" if step.line else ""
    text = _line_of(path, step.line)
    shown = f" (`{text}`)" if text else ""
    return f"{step.op}{place}{shown} gives the same for other operands"


def _line_of(path: Path, line: int | None) -> str:
    if line is None:
        return ""
    try:
        return path.read_text("utf-8").splitlines()[line - 1].strip()[:80]
    except (OSError, IndexError):
        return ""


def _record(
    wide: nn.Module, call: Call, seed: int, path: Path
) -> tuple[list[Step], list[int | None]]:
    """The steps of one run, and which of them made each output."""
    recorder = _Recorder(path)
    with recorder:
        outputs = FLOAT64.run(wide, call.map(FLOAT64.fresh), seed)
    return recorder.steps, [recorder.producer(leaf) for _, leaf in leaves(outputs)]


class _Recorder(TorchDispatchMode):
    """Notes every operation; who wrote to a memory last made what is read from it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._file = str(path.absolute())
        self._writer: dict[int, int] = {}

    def producer(self, leaf: Any) -> int | None:
        return self._writer.get(_memory(leaf)) if isinstance(leaf, Tensor) else None

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = [t for t in tensors([args, kwargs or {}]) if _memory(t)]
        operands = tuple((self.producer(t), _sample(t)) for t in given)
        out = func(*args, **(kwargs or {}))
        made = [t for t in tensors(out) if _memory(t)]
        name = func.overloadpacket.__name__  # type: ignore[attr-defined]
        self.steps.append(Step(name, self._line(), operands, tuple(map(_sample, made))))
        for t in made:
            self._writer[_memory(t)] = len(self.steps) - 1
        return out

    def _line(self) -> int | None:
        """The innermost line of the model file that is executing."""
        return next((f.f_lineno for f in _frames() if f.f_code.co_filename == self._file), None)


def _frames() -> Iterator[Any]:
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


def _memory(t: Tensor) -> int:
    """Where the tensor's memory begins; 0 without any."""
    return t.untyped_storage().data_ptr() if t.layout is torch.strided else 0


def _sample(t: Tensor) -> Tensor:
    """Some elements of a tensor, evenly spread over it, in float64 on the CPU."""
    flat = t.detach().reshape(-1)[:: max(1, t.numel() // _SAMPLES)]
    flat = torch.view_as_real(flat.resolve_conj()).reshape(-1) if flat.is_complex() else flat
    return flat.to(device="cpu", dtype=torch.float64, copy=True)


def _alike(left: Tensor, right: Tensor, scale_of: Tensor) -> bool:
    """Whether two samples are the same up to rounding in float64."""
    if left.shape != right.shape:
        return False
    if left.numel() == 0:
        return True
    both = left.isfinite() & right.isfinite()
    if not bool(((left == right) | both | (left.isnan() & right.isnan())).all()):
        return False
    distance = float((left - right)[both].abs().max()) if bool(both.any()) else 0.0
    scale = float(scale_of[both].abs().max()) if bool(both.any()) else 0.0
    return distance <= SAME * scale or math.isclose(distance, 0.0, abs_tol=1e-300)
