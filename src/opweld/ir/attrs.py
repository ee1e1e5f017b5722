"""What a node carries beside its operands: small frozen values, named by the operation's row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .expr import Size
from .types import DType, TensorType


@dataclass(frozen=True, slots=True)
class NoAttrs:
    def __str__(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class SourceAttrs:
    """`name` is an identifier for texts; `access` the Python expression in the forward that gives
    it.
    """

    name: str
    access: str

    def __str__(self) -> str:
        return self.access


@dataclass(frozen=True, slots=True)
class ConstAttrs:
    """A scalar. `value` may be a size expression (a dimension used as a number)."""

    value: float | int | bool | Size

    def __str__(self) -> str:
        return repr(self.value) if not hasattr(self.value, "terms") else str(self.value)


@dataclass(frozen=True, slots=True)
class IotaAttrs:
    """start + step * position, along the only axis."""

    start: int | float
    step: int | float
    length: Size

    def __str__(self) -> str:
        return f"start={self.start} step={self.step}"


@dataclass(frozen=True, slots=True)
class CastAttrs:
    dtype: DType

    def __str__(self) -> str:
        return self.dtype.value


@dataclass(frozen=True, slots=True)
class CopyAttrs(CastAttrs):
    """A copy: a CAST to the type that the operand has. An image that it makes has its channels last
    in memory where the first image among the graph's inputs has, as in eager; or always, where the
    forward itself makes what it is computed from so.
    """

    always: bool = False

    def __str__(self) -> str:
        form = "with channels last" if self.always else "in the inputs' format"
        return f"{self.dtype.value} {form}"


@dataclass(frozen=True, slots=True)
class GivenBackAttrs(CastAttrs):
    """A copy of what a convolution computes: the kernel of it writes the copy, which is read as it
    lies by what is behind it.
    """

    def __str__(self) -> str:
        return f"{self.dtype.value} given back"


@dataclass(frozen=True, slots=True)
class NanToNumAttrs:
    nan: float
    posinf: float
    neginf: float

    def __str__(self) -> str:
        return f"nan={self.nan} posinf={self.posinf} neginf={self.neginf}"


@dataclass(frozen=True, slots=True)
class SlopeAttrs:
    slope: float

    def __str__(self) -> str:
        return f"slope={self.slope}"


@dataclass(frozen=True, slots=True)
class EluAttrs:
    alpha: float
    scale: float
    input_scale: float

    def __str__(self) -> str:
        return f"alpha={self.alpha} scale={self.scale} input_scale={self.input_scale}"


@dataclass(frozen=True, slots=True)
class SoftplusAttrs:
    beta: float
    threshold: float

    def __str__(self) -> str:
        return f"beta={self.beta} threshold={self.threshold}"


@dataclass(frozen=True, slots=True)
class ThresholdAttrs:
    threshold: float
    value: float

    def __str__(self) -> str:
        return f"threshold={self.threshold} value={self.value}"


@dataclass(frozen=True, slots=True)
class BoundsAttrs:
    low: float
    high: float

    def __str__(self) -> str:
        return f"low={self.low} high={self.high}"


@dataclass(frozen=True, slots=True)
class LambdaAttrs:
    lambd: float

    def __str__(self) -> str:
        return f"lambd={self.lambd}"


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    """The axes that are condensed, ascending; the result keeps them with size 1.

    `first` is for the gradient of AMAX and AMIN only: the first of equal extremes has it, where
    else they share it.
    """

    axes: tuple[int, ...]
    first: bool = False

    def __str__(self) -> str:
        return f"axes={list(self.axes)}{' first' if self.first else ''}"


@dataclass(frozen=True, slots=True)
class ScanAttrs:
    """Element k along `axis` is what elements 0 to k give, or, in reverse, those from k on. An
    exclusive one is without element k itself.
    """

    axis: int
    reverse: bool = False
    exclusive: bool = False

    def __str__(self) -> str:
        ways = f"{' reverse' if self.reverse else ''}{' exclusive' if self.exclusive else ''}"
        return f"axis={self.axis}{ways}"


@dataclass(frozen=True, slots=True)
class PermuteAttrs:
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"dims={list(self.dims)}"


@dataclass(frozen=True, slots=True)
class ShapeAttrs:
    shape: tuple[Size, ...]

    def __str__(self) -> str:
        return f"shape=[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class SliceAttrs:
    """`length` elements of axis `dim`, from `start`, `step` apart."""

    dim: int
    start: Size
    step: int
    length: Size

    def __str__(self) -> str:
        return f"dim={self.dim} start={self.start} step={self.step} length={self.length}"


@dataclass(frozen=True, slots=True)
class FlipAttrs:
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"dims={list(self.dims)}"


@dataclass(frozen=True, slots=True)
class CatAttrs:
    dim: int

    def __str__(self) -> str:
        return f"dim={self.dim}"


@dataclass(frozen=True, slots=True)
class PadAttrs:
    """Constant padding: per axis the number of elements before and after (not negative)."""

    before: tuple[Size, ...]
    after: tuple[Size, ...]
    value: float | int | bool

    def __str__(self) -> str:
        return f"before={list(self.before)} after={list(self.after)} value={self.value}"


@dataclass(frozen=True, slots=True)
class WindowAttrs:
    """Axis `dim` as two axes, (count, width): element (i, k) is that at i * step + k * dilation."""

    dim: int
    count: Size
    step: int
    width: int
    dilation: int = 1

    def __str__(self) -> str:
        dilated = f" dilation={self.dilation}" if self.dilation != 1 else ""
        return f"dim={self.dim} count={self.count} step={self.step} width={self.width}{dilated}"


@dataclass(frozen=True, slots=True)
class GatherAttrs:
    """Along axis `dim` the element whose number the index holds.

    A number below 0 counts from the end where it `wraps`, else it is out of range as one beyond the
    end is. Where the index holds `ignored`, the first element is as good as any. The gradient of
    row `padding` of what is read is zero.
    """

    dim: int
    wraps: bool = False
    ignored: int | None = None
    padding: int | None = None

    def __str__(self) -> str:
        told = [f"{name}={getattr(self, name)}" for name in ("ignored", "padding")]
        named = [text for text in told if not text.endswith("None")]
        return " ".join([f"dim={self.dim}", *(["wraps"] if self.wraps else []), *named])


@dataclass(frozen=True, slots=True)
class Operand:
    """The place of node input `index` in the arguments of a PyTorch call."""

    index: int

    def __str__(self) -> str:
        return f"%{self.index}"


@dataclass(frozen=True, slots=True)
class CallAttrs:
    """A PyTorch call left as it is.

    `target` is the operator's full name ("aten.linear.default"). `arguments` and `keywords` hold
    Operand, numbers, strings, None, size expressions, `TorchLiteral` and nested tuples of them.
    `results` has the type of each result, None for one that is not a tensor; `reason` says in a
    sentence why the operation is not fused. With `draws` it takes random numbers, in the
    program's order. Gradients of a product `summed_in_parts` are as exact as those of PyTorch's
    attention. With `channels_last` the first operand and the result of a convolution have their
    axes in the order (batch, *space, channels). A `loop` (see `ir.loop`) is no operator of
    PyTorch's: the body that it has stands for the call.
    """

    target: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    results: tuple[TensorType | None, ...]
    reason: str
    draws: bool = False
    summed_in_parts: bool = False
    channels_last: bool = False
    loop: Any = None

    def __str__(self) -> str:
        return self.target


@dataclass(frozen=True, slots=True)
class TorchLiteral:
    """A torch value that prints as Python text: `torch.float32`, `torch.contiguous_format`."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ItemAttrs:
    index: int

    def __str__(self) -> str:
        return f"index={self.index}"


NO_ATTRS = NoAttrs()
