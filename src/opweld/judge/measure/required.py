"""What nothing that gives the same results can do without, in bytes and operations.

It is held against the data sheet, and a time below is a failed check, so a rewrite that needs less
than the original must not be accused:

* An input counts if every element tried of it changes the output, and in full only then.
* An output counts without the dimensions along which it is constant; on CUDA only what exceeds the
  last cache, where it may stay.
* One product of dense tensors counts, the largest. Its terms with a zero do not, nor do repeated
  ones; nor what a reduction after it (or few inputs before it) might let one compute in another
  order. A convolution counts as if a transform made one operation of each window.
* A parameter counts if it is in that product: a smaller form of any other might be kept.
* Half of these operations may be saved by fast multiplication (Strassen), symmetry, or a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from opweld.judge.load import Call, seed_all
from opweld.judge.measure.limits import touched_bytes
from opweld.judge.tree import tensors
from opweld.judge.verify.run import fingerprint

# Elements of an input that are tried: one that misses a fifth of the inputs passes 1 in 35 times.
_MAX_PROBES, _MIN_PROBES = 16, 8
_PROBE_BUDGET_S = 5.0
_SAVED_AT_MOST = 0.5


@dataclass(frozen=True, slots=True)
class Required:
    """Bytes that any computation of the results must move, and operations that it must do."""

    num_bytes: float = 0.0
    flops: float = 0.0


@dataclass(frozen=True, slots=True)
class Product:
    """One product or convolution: its operations and the bytes of parameters that it reads."""

    flops: float
    param_bytes: float


def required(
    model: nn.Module, make: Callable[[], Call], cached_bytes: int, outputs_may_stay: bool
) -> Required:
    """What the results of `model` for the inputs of `make()` cannot be had without.

    `make` gives the same values in fresh memory each time. Of all bytes, or where
    `outputs_may_stay` of the outputs', `cached_bytes` need not move.
    """
    call = make()
    inputs = [(i, t) for i, t in enumerate(call.tensors()) if _is_probed(t)]
    needed = [t for i, t in inputs if depends_on_all(model, make, i, len(inputs))]
    if not needed:
        return Required()
    with torch.no_grad(), _Products(model, call) as products:
        outputs = tensors(model(*call.args, **call.kwargs))
    num_input_elems = sum(t.numel() for t in call.tensors())
    product = products.largest(num_input_elems, sum(t.numel() for t in outputs))
    read = sum({t.data_ptr(): touched_bytes(t) for t in needed}.values()) + product.param_bytes
    written = _written_bytes(outputs, call, model)
    if outputs_may_stay:
        moved = read + max(written - cached_bytes, 0)
    else:
        moved = max(read + written - cached_bytes, 0)
    return Required(moved, product.flops)


def depends_on_all(
    model: nn.Module, make: Callable[[], Call], position: int, num_inputs: int = 1
) -> bool:
    """Whether each of some elements of an input, drawn by chance, changes the output.

    Each is set to the input's largest and then to its least value. Too slow a model to try
    `_MIN_PROBES` elements counts as one that does not depend, and so does one whose results differ
    from run to run.
    """
    plain = _result(model, make())
    start = perf_counter()
    if _result(model, make()) != plain:
        return False
    spent_s = perf_counter() - start
    affordable = int(_PROBE_BUDGET_S / max(2 * spent_s * num_inputs, 1e-6))
    if affordable < _MIN_PROBES:
        return False
    t = make().tensors()[position]
    extremes = (float(t.max()), float(t.min()))
    chosen = torch.randint(t.numel(), (min(_MAX_PROBES, affordable),)).tolist()
    return all(
        any(_changed(make(), position, place, value, model, plain) for value in extremes)
        for place in chosen
    )


def _changed(
    call: Call, position: int, place: int, value: float, model: nn.Module, plain: Any
) -> bool:
    t = call.tensors()[position]
    index = []
    for size in reversed(t.shape):
        index.append(place % size)
        place //= size
    t[tuple(reversed(index))] = value
    return bool(_result(model, call) != plain)


def _result(model: nn.Module, call: Call) -> Any:
    seed_all(0)
    with torch.no_grad():
        outputs = tensors(model(*call.args, **call.kwargs))
        # the sign of a zero is nothing that has to be computed
        return fingerprint([t + 0 if t.is_floating_point() else t for t in outputs])


def _is_probed(t: Tensor) -> bool:
    return t.is_floating_point() and t.layout is torch.strided and t.numel() > 0 and t.dim() > 0


def _written_bytes(outputs: list[Tensor], call: Call, model: nn.Module) -> int:
    """Bytes of the outputs that are no part of what was given."""
    held = (*call.tensors(), *model.parameters(), *model.buffers())
    given = {t.untyped_storage().data_ptr() for t in held if t.layout is torch.strided}
    fresh = {
        t.data_ptr(): varying_bytes(t)
        for t in outputs
        if t.layout is torch.strided and t.untyped_storage().data_ptr() not in given
    }
    return sum(fresh.values())


def varying_bytes(t: Tensor) -> int:
    """Bytes without the dimensions along which the first, middle and last elements agree."""
    if t.numel() == 0:
        return 0
    for dim, size in enumerate(t.shape):
        first = t.narrow(dim, 0, 1)
        others = (t.narrow(dim, at, 1) for at in (size // 2, size - 1))
        if size > 1 and all(bool(first.eq(other).all()) for other in others):
            t = first
    return t.numel() * t.element_size()


class _Products(TorchDispatchMode):
    """Records every product and convolution of a run."""

    def __init__(self, model: nn.Module, call: Call) -> None:
        super().__init__()
        held = (*model.parameters(), *model.buffers())
        self._held = {t.untyped_storage().data_ptr() for t in held if t.layout is torch.strided}
        self._found: list[tuple[float, float, int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        operands = tensors(args)
        if packet in flop_registry and all(t.layout is torch.strided for t in operands):
            flops = float(flop_registry[packet](*args, **(kwargs or {}), out_val=result))
            self._record(packet, flops, operands, tensors(result)[0])
        return result

    def largest(self, num_input_elems: int, num_output_elems: int) -> Product:
        """The product with the most operations that no other order of computing saves."""
        scaled = [
            Product(flops * share, param_bytes * share)
            for flops, param_bytes, read, written in self._found
            for share in [
                min(1.0, num_input_elems / max(read, 1))
                * min(1.0, num_output_elems / max(written, 1))
            ]
        ]
        return max(scaled, key=lambda product: product.flops, default=Product(0.0, 0.0))

    def _record(self, packet: Any, flops: float, operands: list[Tensor], result: Tensor) -> None:
        is_held = [t.untyped_storage().data_ptr() in self._held for t in operands]
        read = sum(t.numel() for t, held in zip(operands, is_held, strict=True) if not held)
        params = (touched_bytes(t) for t, held in zip(operands, is_held, strict=True) if held)
        if not read:
            return  # of parameters alone, it might be done once for many calls
        flops *= _SAVED_AT_MOST * _share_of_terms(packet, operands)
        self._found.append((flops, max(params, default=0), read, result.numel()))


def _share_of_terms(packet: Any, operands: list[Tensor]) -> float:
    """Of a product's terms those that are not zero and not repeated."""
    aten = torch.ops.aten
    if packet in (aten.convolution, aten._convolution, aten.cudnn_convolution):
        return 1 / max(operands[1].shape[2:].numel(), 1)
    if packet in (aten.addmm, aten.baddbmm):
        operands = operands[1:]
    elif packet not in (aten.mm, aten.bmm):
        return 1.0
    left, right = operands[:2]
    terms = (left != 0).sum(-2).double() * (right != 0).sum(-1).double()
    share = float(terms.sum()) / max(left.numel() * right.shape[-1], 1)
    for t in (left, right):
        share *= touched_bytes(t) / max(t.numel() * t.element_size(), 1)
    return share
