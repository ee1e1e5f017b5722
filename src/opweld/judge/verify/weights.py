"""The state of both sides: that it is the same at first, and follows when it is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from opweld.judge.numerics.compare import same_bits
from opweld.judge.numerics.outputs import dense, is_float
from opweld.judge.sparse import with_stored
from opweld.judge.values import Check
from opweld.judge.verify.run import state_tensors
from opweld.judge.verify.seeds import stream

State = dict[str, Tensor]


def compare_state(original: nn.Module, left: State) -> Check:
    """Names, shapes, dtypes and values of the two state dictionaries; `left` is ModelNew's."""
    right = dict(state_tensors(original))
    clause = _names_differ(left, right) or _entries_differ(left, right)
    if clause:
        return Check("same parameters from the same seed", False, clause)
    count = sum(t.numel() for t in right.values())
    detail = f"{len(right)} entries, {count} elements" if right else "the model has no parameters"
    return Check("same parameters from the same seed", True, detail)


def copy_state(model: nn.Module) -> State:
    """The tensors of the state dictionary in memory of their own."""
    return {name: t.detach().clone() for name, t in state_tensors(model)}


@contextlib.contextmanager
def state_restored(model: nn.Module) -> Iterator[None]:
    """Undoes what calls change of the state, such as a count of them."""
    before = copy_state(model)
    try:
        yield
    finally:
        if any(not same_bits(t, before[name]) for name, t in state_tensors(model)):
            load_state(model, before)


def load_state(model: nn.Module, state: State) -> None:
    """`load_state_dict(strict=True)`; entries that are no tensors stay."""
    _own_tensors(model)
    model.load_state_dict({**model.state_dict(), **state})


def _own_tensors(model: nn.Module) -> None:
    """Buffers that a forward has assigned are what it made: tensors of inference mode, which nobody
    writes to, or with a gradient. So are its other attributes, of which those of inference mode
    would have each later forward that writes to them fail.
    """
    for owner in model.modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None and (buffer.is_inference() or buffer.grad_fn is not None):
                owner._buffers[name] = buffer.detach().clone()
        held = vars(owner)
        for name, value in [*held.items()]:
            if isinstance(value, Tensor) and value.is_inference():
                held[name] = value.clone()


def change_in_place(model: nn.Module, state: State, through: str = "copy_") -> None:
    """Write a state into the parameters and buffers that the model has, without loading it."""
    for name, target in state_tensors(model):
        if name not in state:
            continue
        value = state[name].to(device=target.device, dtype=target.dtype)
        with torch.no_grad():
            _write(_held(model, name, target), value, through)


def _write(target: Tensor, value: Tensor, through: str) -> None:
    if through == "copy_":
        target.copy_(value)
    else:
        target.data.copy_(value)


def _held(model: nn.Module, name: str, otherwise: Tensor) -> Tensor:
    """The parameter or buffer itself: the state dictionary's tensor is another object for it."""
    path, _, last = name.rpartition(".")
    try:
        owner = model.get_submodule(path)
    except AttributeError:
        return otherwise
    found = owner._parameters.get(last)
    found = owner._buffers.get(last) if found is None else found
    return otherwise if found is None else found


def shake_state(state: State, seed: int) -> State:
    """Every floating-point element times a number between 1/2 and 3/2: variances stay positive."""
    generator = torch.Generator().manual_seed(stream(seed, "other weights"))

    def shaken(values: Tensor) -> Tensor:
        factor = torch.rand(values.shape, generator=generator, dtype=torch.float32).add_(0.5)
        return values * factor.to(device=values.device, dtype=values.dtype)

    def shake(t: Tensor) -> Tensor:
        if not is_float(t):
            return t
        return with_stored(t, shaken)

    return {name: shake(t) for name, t in state.items()}


def _names_differ(new: State, original: State) -> str | None:
    missing = sorted(original.keys() - new.keys())
    extra = sorted(new.keys() - original.keys())
    if missing:
        return f"ModelNew lacks {', '.join(missing[:5])}"
    if extra:
        return f"ModelNew has {', '.join(extra[:5])} beyond the original's state"
    return None


def _entries_differ(new: State, original: State) -> str | None:
    for name, right in original.items():
        left = new[name]
        if left.is_meta or left.shape != right.shape or left.dtype != right.dtype:
            return f"{name} is {_kind(left)} in ModelNew, {_kind(right)} in the original"
        if not same_bits(dense(left), dense(right)):
            return f"{name} has other values from the same seed"
    return None


def _kind(t: Tensor) -> str:
    layout = "" if t.layout is torch.strided else f"{t.layout} "
    return f"{layout}{t.dtype} {tuple(t.shape)}"
