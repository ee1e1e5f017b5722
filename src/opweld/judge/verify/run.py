"""One call of one side, and what it left behind: outputs, changed inputs, changed state."""

from __future__ import annotations

import contextlib
import hashlib
import math
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from opweld.judge.load import Call, seed_all
from opweld.judge.numerics.compare import pieces_of
from opweld.judge.sparse import dense_parts
from opweld.judge.tree import leaves, structure, tensors
from opweld.judge.values import Check
from opweld.judge.verify.aliases import alias_map

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WIDTH = 256
_GENERATORS = ("torch's", "CUDA's", "Python's", "NumPy's")
# Up to this size a tensor is looked at on the CPU: one answer of the device, and none of its sums.
_SMALL_BYTES = 2**20
# glibc maps blocks of this size and above, whatever its threshold has grown to.
_MAX_CPU_POISON_BYTES = 32 * 2**20
# torch.use_deterministic_algorithms tells torch.compile as well, and so imports all of it.
_SET_DETERMINISTIC: Any = torch._C._set_deterministic_algorithms

Fingerprint = tuple[tuple[int, ...], ...]
# Calls a model and gives its outputs.
Forward = Callable[[nn.Module, Call], Any]


class DeviceLost(Exception):
    """The device reported an error after which nothing runs on it; carries the check it ends."""

    def __init__(self, check: Check) -> None:
        super().__init__(check.detail)
        self.check = check


def plainly(model: nn.Module, call: Call) -> Any:
    """The call itself, with nothing around it."""
    return model(*call.args, **call.kwargs)


@dataclass(frozen=True, slots=True)
class Run:
    """The leaves that are compared: the outputs', then changed inputs, then changed state.

    `kinds` names the class of each leaf that is a tensor of no plain class, or says that it needs
    gradients though the call was made without them, `strides` are those of the tensors, `aliases`
    says which outputs share memory with what, `random` digests the state that each generator is
    left in.
    """

    names: tuple[str, ...]
    leaves: list[Any]
    nesting: list[tuple[str, str]]
    changed_inputs: tuple[int, ...] = ()
    changed_state: tuple[str, ...] = ()
    draws_random: bool = False
    kinds: tuple[str, ...] = ()
    strides: tuple[tuple[int, ...], ...] = ()
    aliases: tuple[str, ...] = ()
    random: tuple[str, ...] = ()


def autocast_to(dtype: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Autocast to the dtype of this name; "" leaves it as it is."""
    if not dtype:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, dtype))


def run(
    model: nn.Module,
    call: Call,
    seed: int,
    grad: bool = False,
    like: Run | None = None,
    watch_state: bool = False,
    forward: Forward = plainly,
    inference: bool = False,
) -> Run:
    """Call `model` by `forward` with the random state that `seed` gives.

    Which inputs and buffers count as results is found by comparing them before and after; with
    `like` it is what that run (of the other side) changed, and changes beyond it raise.

    Raises:
        Overwritten: an input or buffer changed that `like` left alone.
    """
    inputs_before = fingerprint(call.tensors())
    state_before = state_fingerprint(model) if watch_state else {}
    seed_all(seed)
    random_before = _random_state()
    try:
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            outputs = forward(model, call)
        synchronize()
    except Exception:
        if like is not None:
            _forbid_more(_changed(call, inputs_before), (), like)
        raise
    random_after = _random_state()
    inputs = _changed(call, inputs_before)
    state_after = state_fingerprint(model) if watch_state else {}
    state = tuple(name for name in state_before if state_after.get(name) != state_before[name])
    if like is not None:
        _forbid_more(inputs, state, like)
        inputs, state = like.changed_inputs, like.changed_state
    found = collect(outputs, call, model, inputs, state)
    extra = (*(f"input {i} afterwards" for i in inputs), *(f"state {name}" for name in state))
    return Run(
        names=(*(f"output{path}" for path, _ in leaves(outputs)), *extra),
        leaves=[plain(leaf) for leaf in found],
        nesting=structure(outputs),
        changed_inputs=inputs,
        changed_state=state,
        draws_random=_drawn(random_after) != _drawn(random_before),
        kinds=tuple(_kind(leaf, wants_gradients=grad) for leaf in found),
        strides=tuple(tuple(t.stride()) for t in tensors(found) if t.layout is torch.strided),
        aliases=alias_map(
            {f"output{path}": leaf for path, leaf in leaves(outputs)},
            {f"input {i}": t for i, t in enumerate(call.tensors())}
            | {f"state {name}": t for name, t in state_tensors(model)},
        ),
        random=random_after,
    )


def _changed(call: Call, before: Fingerprint) -> tuple[int, ...]:
    """Positions of the inputs that are not what they were."""
    after = fingerprint(call.tensors())
    return tuple(i for i, (b, a) in enumerate(zip(before, after, strict=True)) if a != b)


def of_outputs(outputs: Any) -> Run:
    """A run without gradients of which only the outputs are known."""
    named = list(leaves(outputs))
    found = [leaf for _, leaf in named]
    return Run(
        names=tuple(f"output{path}" for path, _ in named),
        leaves=[plain(leaf) for leaf in found],
        nesting=structure(outputs),
        kinds=tuple(_kind(leaf, wants_gradients=False) for leaf in found),
        strides=tuple(tuple(t.stride()) for t in tensors(found) if t.layout is torch.strided),
    )


def plain(leaf: Any) -> Any:
    """A leaf that is no tensor, number or text, as text that says what it is."""
    if leaf is None or isinstance(leaf, (Tensor, bool, int, float, str)):
        return leaf
    return f"{type(leaf).__qualname__} {leaf!r}"


def _kind(leaf: Any, wants_gradients: bool) -> str:
    if not isinstance(leaf, Tensor):
        return ""
    if not wants_gradients and leaf.requires_grad:
        return "tensor that requires gradients where the caller wants none"
    if type(leaf) in (Tensor, nn.Parameter, nn.Buffer):
        return ""
    return f"{type(leaf).__module__}.{type(leaf).__qualname__}"


class Overwritten(Exception):
    """A side wrote to an input or buffer that the other side left alone."""


def collect(
    outputs: Any, call: Call, model: nn.Module, inputs: tuple[int, ...], state: tuple[str, ...]
) -> list[Any]:
    """The leaves of a run, in the order of `Run.names`."""
    given, held = call.tensors(), dict(state_tensors(model)) if state else {}
    changed = [given[i] for i in inputs] + [held[name].detach().clone() for name in state]
    return [leaf for _, leaf in leaves(outputs)] + changed


def state_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The entries of the state dictionary that are tensors."""
    for name, value in model.state_dict().items():
        if isinstance(value, Tensor):
            yield name, value


def state_fingerprint(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """A fingerprint of every state tensor, by name."""
    named = dict(state_tensors(model))
    return dict(zip(named, fingerprint(list(named.values())), strict=True))


def fingerprint(values: list[Any]) -> Fingerprint:
    """A few integers for each tensor, which change when any of its elements does."""
    return tuple(_fingerprint(t) for t in values if isinstance(t, Tensor))


def _fingerprint(t: Tensor) -> tuple[int, ...]:
    t = t.detach()
    if t.layout is torch.sparse_coo:
        t = t.coalesce()
    return tuple(number for part in dense_parts(t) for number in _of_strided(part))


def _of_strided(t: Tensor) -> tuple[int, ...]:
    t = t.resolve_neg()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    if t.nbytes <= _SMALL_BYTES:
        t = t.cpu()
    add: Callable[[tuple[Any, ...], Tensor], tuple[Any, ...]]
    add = _add_sums if t.is_cuda else _add_checksum
    total: tuple[Any, ...] = (0, 0)
    for index in pieces_of(t):
        piece = t[index].contiguous()
        # a single element counts as contiguous whatever its strides, which a view would mind
        total = add(total, piece.as_strided((piece.numel(),), (1,)))
    return tuple(torch.stack(total).tolist()) if t.is_cuda else total


def _add_checksum(before: tuple[int, ...], piece: Tensor) -> tuple[int, ...]:
    """CRC-32 of the bytes: numpy reads them far faster than torch sums integers."""
    return (zlib.crc32(piece.view(torch.uint8).numpy(), before[0]), 0)


def _add_sums(before: tuple[Any, ...], piece: Tensor) -> tuple[Tensor, ...]:
    """Sums over the bits in rows of `_WIDTH`, by column and by row, with odd weights.

    Any one changed element shows in both, and any two swapped ones in one of them. They stay on the
    device, modulo 2^64, as its integers are.
    """
    bits = piece.view(_INTEGER_OF_SIZE[piece.element_size()])
    body = bits[: bits.numel() // _WIDTH * _WIDTH].view(-1, _WIDTH)
    rest = bits[body.numel() :]
    return tuple(
        _mix(old, body.sum(dim, dtype=torch.int64), rest) for dim, old in enumerate(before)
    )


def _mix(before: Any, *parts: Tensor) -> Tensor:
    for part in parts:
        weights = torch.arange(1, 2 * part.numel() + 1, 2, device=part.device)
        before = before * 31 + (part.long() * weights).sum()
    return torch.as_tensor(before)


def poison(values: list[Any], device: torch.device) -> None:
    """Fill freed memory of the sizes of these tensors with NaN, so that gaps in new ones show.

    Of the tensors shape and dtype count. Large blocks on the CPU are left out: they go back to the
    system, which hands out zeros.
    """
    held = []
    try:
        for t in tensors(values):
            if device.type == "cuda" or t.numel() * t.element_size() < _MAX_CPU_POISON_BYTES:
                value = _poison_value(t)
                held.append(torch.full(t.shape, value, dtype=t.dtype, device=device))
    except torch.OutOfMemoryError:
        pass  # then there is no free block of this size to be found either
    held.clear()


@contextlib.contextmanager
def filled_memory() -> Iterator[None]:
    """Inside, torch fills every tensor that it leaves uninitialised with NaN or the largest int."""
    before = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    _SET_DETERMINISTIC(True, warn_only=True)
    try:
        yield
    finally:
        _SET_DETERMINISTIC(before, warn_only=warn)


def synchronize() -> None:
    """Wait for the device, which is also where a bad memory access is reported."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _forbid_more(inputs: tuple[int, ...], state: tuple[str, ...], like: Run) -> None:
    for position in inputs:
        if position not in like.changed_inputs:
            raise Overwritten(f"writes to its input {position}, which the original leaves alone")
    for name in state:
        if name not in like.changed_state:
            raise Overwritten(f"changes {name}, which the original leaves alone")


def _poison_value(t: Tensor) -> float | int | bool:
    if t.is_floating_point() or t.is_complex():
        return math.nan
    return True if t.dtype is torch.bool else torch.iinfo(t.dtype).max


def random_clause(new: Run, original: Run) -> str | None:
    """Which generator is left in another state than the original leaves it in; None without one."""
    for name, ours, theirs in zip(_GENERATORS, new.random, original.random, strict=False):
        if ours and theirs and ours != theirs:
            return f"ModelNew leaves {name} generator in another state than the original does"
    return None


def _drawn(state: tuple[str, ...]) -> tuple[str, ...]:
    """Of torch's generators: outputs that are tensors come from these."""
    return state[:2]


def _random_state() -> tuple[str, ...]:
    """A digest for each of `_GENERATORS`, empty where there is none in this process."""
    states = (
        torch.get_rng_state().numpy().tobytes(),
        torch.cuda.get_rng_state().numpy().tobytes() if torch.cuda.is_initialized() else b"",
        repr(random.getstate()).encode(),
        _numpy_state(),
    )
    return tuple(hashlib.sha256(state).hexdigest() if state else "" for state in states)


def _numpy_state() -> bytes:
    """NumPy's global generator; the text of its array would take longer than most calls."""
    if (numpy := sys.modules.get("numpy")) is None:
        return b""
    state = numpy.random.get_state(legacy=False)
    found = state.pop("state")
    if not isinstance(found.get("key"), numpy.ndarray):  # another generator was put in its place
        return repr((found, state)).encode()
    return found.pop("key").tobytes() + repr((found, state)).encode()


def outputs_of(run: Run) -> Run:
    """Without the inputs and the state that the run changed."""
    count = len(run.leaves) - len(run.changed_inputs) - len(run.changed_state)
    return replace(
        run,
        names=run.names[:count],
        leaves=run.leaves[:count],
        kinds=run.kinds[:count],
        changed_inputs=(),
        changed_state=(),
    )
