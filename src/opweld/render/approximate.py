"""Which functions are called where the operands allow it: of 16 bits, or constant divisors."""

from __future__ import annotations

import math

from ..device import names
from ..ir.kernels.kernel import Const, Let
from ..ir.ops import Op
from ..ir.types import DType

_KNOWN = {language: frozenset(names(language)) for language in ("cuda", "cpp")}
# The first of these that the device library has; bfloat16 has two to three fewer bits than half.
_SUFFIXES = {DType.F16: ("approx",), DType.BF16: ("bf16", "approx")}


def approximate_name(let: Let, language: str) -> str | None:
    """The piece of the device library that is exact enough for 16-bit operands, if any."""
    found = (f"{let.op.value}_{suffix}" for suffix in _SUFFIXES.get(let.operands, ()))
    return next((name for name in found if name in _KNOWN[language]), None)


def constant_divisor(let: Let) -> Const | None:
    """The divisor of a 16-bit division by a constant with a normal float32 reciprocal."""
    if let.op is not Op.DIV or not let.operands.is_half:
        return None
    divisor = let.args[1]
    if not isinstance(divisor, Const) or not 2.0**-126 <= abs(divisor.value) <= 2.0**126:
        return None
    return divisor


def is_ratio(let: Let, language: str) -> bool:
    """Whether a float32 division has a constant divisor that the GPU's `op::ratio` takes.

    nvcc makes a product of a division by a power of two.
    """
    if let.op is not Op.DIV or let.operands is not DType.F32 or language != "cuda":
        return False
    divisor = let.args[1]
    if not isinstance(divisor, Const) or not 1.0 <= divisor.value < math.inf:
        return False
    return math.frexp(divisor.value)[0] != 0.5
