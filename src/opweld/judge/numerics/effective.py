"""The precision that a result really has, named by measurement.

What a format with p significant bits costs depends on the model: a product of length k whose
operands are rounded to p bits has a relative error of about 2^-p whatever k is, for the k roundings
are independent and grow as the sum does; accumulated in p bits it has sqrt(k) times as much, and a
cancellation behind it magnifies either. So no fixed table is used. The original itself is run with
its operands rounded to the format, once at products only and once at every operation, and the root
mean square errors of these runs are the marks that ModelNew's is held against. A candidate has the
name of the format whose marks are nearest over all the kinds of inputs that were looked at, within
two bits on average; TF32 and float16 both have 11 bits and differ where float16's range ends.

The original may compute in a lower precision than its dtype has: float32 products of TF32, by
torch's flags. Then an error no larger than its own is not that of its dtype. What that would be is
seen on the float64 run with every operation's results rounded to the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from opweld.judge.load import Call, seed_all
from opweld.judge.numerics.grade import MARGIN_B

APPROXIMATE, EXACT = "approximate", "exact"
# Where an operator's call has the number of groups.
GROUPS = {"convolution": 8, "convolution_backward": 9}
# The mean distance, in bits, up to which a format's name is given.
MAX_DISTANCE_BITS = 2.0
# A format that costs less than so many times the rounding of the dtype itself is not told apart.
LEAST_COST = 4.0
# Errors from so many times float32's half ulp of a typical value on may be a lower format's.
COARSE_HALF_ULPS = 256.0
# The factors of each product, by position; a bias stands before them.
FACTORS = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "mv": (0, 1),
    "dot": (0, 1),
    "addmm": (1, 2),
    "addmv": (1, 2),
    "addbmm": (1, 2),
    "baddbmm": (1, 2),
    "linear": (0, 1),
    "convolution": (0, 1),
    "_convolution": (0, 1),
    "convolution_backward": (0, 1, 2),
    "_scaled_dot_product_flash_attention": (0, 1, 2),
    "_scaled_dot_product_flash_attention_for_cpu": (0, 1, 2),
    "_scaled_dot_product_efficient_attention": (0, 1, 2),
    "_scaled_dot_product_cudnn_attention": (0, 1, 2),
}


@dataclass(frozen=True, slots=True)
class Lowering:
    """A way to lose precision: the format, and whether it is at every operation or at products, or
    at `convolutions` alone; those of one channel a group stay.
    """

    name: str
    round: Callable[[Tensor], Tensor]
    everywhere: bool
    convolutions: bool = False

    @property
    def text(self) -> str:
        where = "every operation" if self.everywhere else "products"
        return f"{where} in {self.name}"


@dataclass(frozen=True, slots=True)
class Observation:
    """ModelNew's rms error on one kind of inputs, and the marks: the lowered originals'.

    `rounded_rms` is the error of rounding to the outputs' own dtype alone; 0 where it is not known.
    """

    rms: float
    marks: Mapping[str, tuple[float, ...]]
    eager_rms: float = 0.0
    rounded_rms: float = 0.0

    @property
    def is_faithful(self) -> bool:
        """Whether the error is eager's, within the margin of the grade B, and that of its dtype."""
        return self.rms <= MARGIN_B * self.eager_rms and not self._is_lowered

    @property
    def _is_lowered(self) -> bool:
        """Whether the error is nearer to a lower format's than to that of the outputs' dtype."""
        if not self.rms or not self.rounded_rms:
            return False
        own = _bits_apart(self.rms, self.rounded_rms)
        costly = [
            mark
            for marks in self.marks.values()
            for mark in marks
            if LEAST_COST * self.rounded_rms <= mark < math.inf
        ]
        return any(_bits_apart(self.rms, mark) < own for mark in costly)


def round_tf32(t: Tensor) -> Tensor:
    """To 11 significant bits with float32's range, to nearest, ties to even."""
    if t.dtype is not torch.float32:
        return round_tf32(t.float()).to(t.dtype)
    bits = t.contiguous().view(torch.int32)
    odd = bits.bitwise_right_shift(13).bitwise_and_(1)
    rounded = (bits + odd).add_(0xFFF).bitwise_and_(~0x1FFF).view(torch.float32)
    return torch.where(t.isfinite(), rounded, t)


def _through(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda t: t.to(dtype).to(t.dtype)


FLOAT32, TF32, FLOAT16, BFLOAT16 = "float32", "TF32", "float16", "bfloat16"
LOWERINGS = (
    Lowering(FLOAT32, _through(torch.float32), everywhere=True),
    Lowering(TF32, round_tf32, everywhere=False),
    Lowering(FLOAT16, _through(torch.float16), everywhere=False),
    Lowering(FLOAT16, _through(torch.float16), everywhere=True),
    Lowering(BFLOAT16, _through(torch.bfloat16), everywhere=False),
    Lowering(BFLOAT16, _through(torch.bfloat16), everywhere=True),
)
# By the name of a dtype.
EVERYWHERE = {lowering.name: lowering for lowering in LOWERINGS if lowering.everywhere}
# What `--precision` accepts beside `match`: errors up to those of the original lowered so.
ACCEPTED: dict[str, Lowering] = {"tf32": LOWERINGS[1], "fp16": LOWERINGS[3], "bf16": LOWERINGS[5]}


def _tf32_or_itself(t: Tensor) -> Tensor:
    """What rounding would make infinite stays: tensor cores cut it off."""
    rounded = round_tf32(t)
    return torch.where(rounded.isfinite(), rounded, t)


# What cuDNN may do where its flag allows TF32; eager does it by a convolution's size and layout.
CONVOLUTIONS = Lowering(TF32, _tf32_or_itself, everywhere=False, convolutions=True)


def _allows_tf32() -> bool:
    """Whether torch's flags let cuDNN round so."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # the flag of each operator was set
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")


def allowed_in(device: torch.device) -> Lowering | None:
    """What torch's flags allow beside the errors of eager on this device."""
    return CONVOLUTIONS if device.type == "cuda" and _allows_tf32() else None


def narrower(dtype: torch.dtype) -> tuple[Lowering, ...]:
    """The lowerings that lose something for outputs of this dtype."""
    bits = {torch.float64: 53, torch.float32: 24}.get(dtype, 0)
    return tuple(
        lowering for lowering in LOWERINGS if bits > 24 or (bits == 24 and lowering.name != FLOAT32)
    )


def is_coarse(dtype: str | None, rms: float, scale: float | None) -> bool:
    """Whether an rms error of values of this scale may be that of a lower format than the dtype."""
    return dtype == "float32" and rms > COARSE_HALF_ULPS * 2.0**-25 * (scale or 0.0)


def run_lowered(model: nn.Module, call: Call, seed: int, mode: Lowered) -> Any:
    """The original's outputs under a lowering."""
    seed_all(seed)
    with torch.no_grad(), mode:
        return model(*call.args, **call.kwargs)


def name_of(observations: Iterable[Observation]) -> str:
    """The format nearest to all observations, with `-like` behind it; or `approximate`."""
    seen = [o for o in observations if o.rms > 0]
    names = dict.fromkeys(name for o in seen for name in o.marks)
    distances = {name: sum(_distance_bits(o, name) for o in seen) / len(seen) for name in names}
    nearest = min(distances, key=distances.__getitem__, default=None)
    if nearest is None or distances[nearest] > MAX_DISTANCE_BITS:
        return APPROXIMATE
    return f"{nearest}-like"


def faithful(dtypes: Iterable[str]) -> str:
    """The name where every output is as precise as the original's: that of the narrowest dtype."""
    order = ("float16", "bfloat16", "float32", "float64")
    found = [dtype for dtype in order if dtype in set(dtypes)]
    if not found:
        return EXACT
    return "float64" if found[0] == "float64" else f"{found[0]}-faithful"


def _distance_bits(observation: Observation, name: str) -> float:
    """From the nearest mark of that format, in bits; infinite where all of them overflow."""
    marks = [m for m in observation.marks.get(name, ()) if 0 < m < math.inf]
    return min((_bits_apart(observation.rms, m) for m in marks), default=math.inf)


def _bits_apart(left: float, right: float) -> float:
    """Between two positive numbers; infinite where one of them is."""
    if math.inf in (left, right):
        return math.inf
    return abs(math.log2(left) - math.log2(right))


def _is_dense(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a call is a convolution that has more than one channel in a group."""
    if name not in GROUPS or len(args) <= GROUPS[name]:
        return False
    first, groups = args[GROUPS[name] - 8], args[GROUPS[name]]
    return groups == 1 or groups != first.shape[1]


class Lowered(TorchDispatchMode):
    """Rounds the factors of products, or, everywhere, what operations of float32 and float64 take
    and give. `acted` says whether a factor of a product alone was rounded.
    """

    def __init__(self, lowering: Lowering) -> None:
        super().__init__()
        self._lowering = lowering
        # Inputs and weights of a float64 run are of float32 anyway.
        self._rounds_operands = lowering.everywhere and lowering.name != FLOAT32
        self.acted = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self._lowering.everywhere:
            return func(*self._factors(func.overloadpacket.__name__, args), **kwargs)
        mutable = func._schema.is_mutable
        # a look at memory computes nothing: a recurrent layer on a GPU takes its weights as one so
        looks = func.is_view or torch.Tag.inplace_view in func.tags
        if self._rounds_operands and not (looks or mutable):
            args, kwargs = pytree.tree_map_only(Tensor, self._rounded, (args, kwargs))
        out = func(*args, **kwargs)
        return out if looks else self._results(out, mutable)

    def _factors(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        factors = FACTORS.get(name, ())
        if self._lowering.convolutions and not _is_dense(name, args):
            factors = ()
        self.acted |= bool(factors)
        return tuple(self._rounded(a) if i in factors else a for i, a in enumerate(args))

    def _results(self, out: Any, mutable: bool) -> Any:
        if isinstance(out, Tensor):
            rounded = self._rounded(out)
            return out.copy_(rounded) if mutable and rounded is not out else rounded
        if isinstance(out, (tuple, list)):
            return type(out)(self._results(item, mutable) for item in out)
        return out

    def _rounded(self, value: Any) -> Any:
        lowered = isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float64)
        return self._lowering.round(value) if lowered else value
