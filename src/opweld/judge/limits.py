"""What the machine could do at best, and what no machine of its kind can: two bounds on a time.

The limit is what the reports show: from rates measured in the same run, the larger of the bytes of
inputs, parameters and outputs at the speed of a copy, and the operations of the original's products
and convolutions at the speed of a large product of that dtype under the same flags. A clever
rewrite may be faster than that.

What is *required* (`required`) is less, and certain: nothing that gives the same results can do
without it. It is held against the data sheet, and a time below is a failed check. So a rewrite that
needs less must not be accused:

* An input counts if every element tried of it changes the output, and in full only then.
* An output counts without the dimensions along which it is constant; on CUDA only what exceeds the
  last cache, where it may stay.
* One product counts, the largest. Its terms with a zero do not, nor do repeated ones; nor what a
  reduction after it (or few inputs before it) might let one compute in another order. A
  convolution counts as if a transform made one operation of each window.
* A parameter counts if it is in that product: a smaller form of any other might be kept.
* Half of these operations may be saved by fast multiplication (Strassen), symmetry, or a mask.
"""

from __future__ import annotations

import glob
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from opweld.judge.clock import time_interleaved
from opweld.judge.load import Call, seed_all
from opweld.judge.memory import available_bytes
from opweld.judge.run import fingerprint
from opweld.judge.tree import tensors
from opweld.judge.values import Samples

COPY_ELEMS = {"cuda": 2**28, "cpu": 2**26}
PRODUCT_SIZE = {"cuda": 8192, "cpu": 1024}
_RATE_BUDGET_S = 0.3
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


def copy_samples(device: torch.device) -> tuple[Samples, int]:
    """Times of a device-to-device copy, and the bytes that one reads and writes."""
    count = min(COPY_ELEMS[device.type], available_bytes(device) // 16)
    source = torch.zeros(count, dtype=torch.float32, device=device)
    target = torch.zeros_like(source)
    samples = time_interleaved({"copy": lambda: target.copy_(source)}, device, _RATE_BUDGET_S)
    return samples["copy"], 2 * source.nbytes


def product_tflops(device: torch.device, dtype: torch.dtype) -> float:
    """TFLOP/s of a square matrix product under torch's current precision flags."""
    size = PRODUCT_SIZE[device.type]
    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    samples = time_interleaved({"product": lambda: left @ right}, device, _RATE_BUDGET_S)
    return 2 * size**3 / samples["product"].median / 1e9


def limit(
    num_bytes: int, flops: int, copy_gbps: float, product_tflops: float | None
) -> tuple[float, str]:
    """The least time in ms, and which of the two sets it."""
    move_ms = num_bytes / copy_gbps / 1e6
    multiply_ms = flops / product_tflops / 1e9 if product_tflops else 0.0
    if multiply_ms > move_ms:
        return multiply_ms, f"products: {flops / 1e9:.4g} GFLOP at {product_tflops:.4g} TFLOP/s"
    return move_ms, f"memory: {num_bytes / 1e6:.4g} MB at the copy's {copy_gbps:.4g} GB/s"


def moved_bytes(model: nn.Module, call: Call, outputs: Any) -> int:
    """Bytes of inputs, parameters, buffers and outputs; what several of them share counts once."""
    held = (*call.tensors(), *model.parameters(), *model.buffers(), *tensors(outputs))
    return sum(size for _, size in {(t.data_ptr(), touched_bytes(t)) for t in held})


def touched_bytes(t: Tensor) -> int:
    """Bytes of the distinct elements: an expanded dimension holds one."""
    if t.layout is not torch.strided:
        return t.numel() * t.element_size()
    distinct = 1
    for size, stride in zip(t.shape, t.stride(), strict=True):
        distinct *= size if stride or size == 0 else 1
    return distinct * t.element_size()


def product_flops(model: nn.Module, call: Call) -> int:
    """Operations of the matrix products and convolutions, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        model(*call.args, **call.kwargs)
    return int(counter.get_total_flops())


def required(
    model: nn.Module,
    make: Callable[[], Call],
    call_ms: float,
    cached_bytes: int,
    outputs_may_stay: bool,
) -> Required:
    """What the results of `model` for the inputs of `make()` cannot be had without.

    `make` gives the same values in fresh memory each time. `call_ms` is about what one call takes.
    Of all bytes, or where `outputs_may_stay` of the outputs', `cached_bytes` need not move.
    """
    call = make()
    inputs = [(i, t) for i, t in enumerate(call.tensors()) if _is_probed(t)]
    needed = [t for i, t in inputs if depends_on_all(model, make, i, call_ms, len(inputs))]
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
    model: nn.Module, make: Callable[[], Call], position: int, call_ms: float, num_inputs: int = 1
) -> bool:
    """Whether each of some elements of an input, drawn by chance, changes the output.

    Each is set to the input's largest and then to its least value. Too slow a model to try
    `_MIN_PROBES` elements counts as one that does not depend, and so does one whose results differ
    from run to run.
    """
    affordable = int(_PROBE_BUDGET_S * 1e3 / max(2 * call_ms * num_inputs, 1e-3))
    if affordable < _MIN_PROBES:
        return False
    plain = _result(model, make())
    if _result(model, make()) != plain:
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
        if packet in flop_registry:
            flops = float(flop_registry[packet](*args, **(kwargs or {}), out_val=result))
            self._record(packet, flops, tensors(args), tensors(result)[0])
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


def cpu_cache_bytes() -> int | None:
    """All caches of the last level together, as the kernel names them; None where it does not."""
    found = {}
    for folder in map(Path, glob.glob("/sys/devices/system/cpu/cpu*/cache/index*")):
        try:
            level = int((folder / "level").read_text())
            shared = (folder / "shared_cpu_list").read_text()
            size = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        found[level, shared] = int(size.rstrip("KM")) * (2**20 if size.endswith("M") else 2**10)
    last = max((level for level, _ in found), default=None)
    return sum(size for (level, _), size in found.items() if level == last) or None
