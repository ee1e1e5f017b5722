"""What CUDA and C++ texts share: types, constants, expressions, the scalar function of a group."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.expr import Atom, Monomial, Picked, Quotient, Size, Symbol, terms_of
from ..ir.kernels.kernel import Arg, Gather, Kernel, Let, Name
from ..ir.ops import Op
from ..ir.syntax import bare, infix
from ..ir.types import DType
from .approximate import approximate_name, constant_divisor, is_ratio

STORAGE: dict[DType, str] = {
    DType.BOOL: "bool",
    DType.U8: "uint8_t",
    DType.I8: "int8_t",
    DType.I16: "int16_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.F16: "op::half",
    DType.BF16: "op::bfloat16",
    DType.F32: "float",
    DType.F64: "double",
}

INFIX: dict[Op, str] = {
    Op.ADD: "+",
    Op.SUB: "-",
    Op.MUL: "*",
    Op.DIV: "/",
    Op.EQ: "==",
    Op.NE: "!=",
    Op.LT: "<",
    Op.LE: "<=",
    Op.GT: ">",
    Op.GE: ">=",
    Op.BITWISE_AND: "&",
    Op.BITWISE_OR: "|",
    Op.BITWISE_XOR: "^",
}

# Operations that an infix operator spells for bool operands only.
BOOL_INFIX: dict[Op, str] = {
    Op.ADD: "||",
    Op.MUL: "&&",
    Op.MAXIMUM: "||",
    Op.MINIMUM: "&&",
    Op.CLAMP_MIN: "||",
    Op.CLAMP_MAX: "&&",
    Op.LOGICAL_AND: "&&",
    Op.LOGICAL_OR: "||",
    Op.LOGICAL_XOR: "!=",
    Op.BITWISE_AND: "&&",
    Op.BITWISE_OR: "||",
    Op.BITWISE_XOR: "!=",
}

LOGICAL = (Op.LOGICAL_AND, Op.LOGICAL_OR, Op.LOGICAL_XOR)

ATTRIBUTES: dict[Op, tuple[str, ...]] = {
    Op.NAN_TO_NUM: ("nan", "posinf", "neginf"),
    Op.LEAKY_RELU: ("slope",),
    Op.ELU: ("alpha", "scale", "input_scale"),
    Op.SOFTPLUS: ("beta", "threshold"),
    Op.THRESHOLD: ("threshold", "value"),
    Op.HARDTANH: ("low", "high"),
    Op.SOFTSHRINK: ("lambd",),
    Op.HARDSHRINK: ("lambd",),
}

NARROW_INTEGERS = (DType.U8, DType.I8, DType.I16)


def compute_type(dtype: DType) -> str:
    """The C type in which values of `dtype` are calculated."""
    return STORAGE[dtype.compute]


def constant(value: Any, dtype: DType) -> str:
    """The exact text of a constant in the compute type of `dtype`."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return _integer(int(value), dtype)
    single = dtype.compute is DType.F32
    number = float(np.float32(value)) if single else float(value)
    if math.isnan(number):
        return "float(NAN)" if single else "double(NAN)"
    if math.isinf(number):
        sign = "-" if number < 0 else ""
        return f"{sign}op::kInfinity<{compute_type(dtype)}>"
    # str() of a NumPy float is the shortest decimal that reads back as the same number.
    return f"{_with_point(str(np.float32(value)))}f" if single else _with_point(repr(number))


def _with_point(text: str) -> str:
    return text if any(c in text for c in ".e") else f"{text}.0"


def _integer(value: int, dtype: DType) -> str:
    if dtype is DType.I64:
        # The least value has no literal of its own in C++.
        text = f"{value}ll" if value != -(2**63) else "(-9223372036854775807ll - 1)"
        return f"int64_t({text})"
    return f"{STORAGE[dtype]}({value})"


def argument(arg: Arg) -> str:
    return arg.text if isinstance(arg, Name) else constant(arg.value, arg.dtype)


def spelled(let: Let, language: str) -> str:
    """The expression of one statement of an element.

    `language` is "cuda" or "cpp". Results of 16-bit operands are as exact as 16 bits need.
    """
    args = [argument(arg) for arg in let.args]
    if constant_divisor(let):
        factor = f"1.0f / {args[1]}"
        if let.rounded:
            return _call(let, "rounded_product", [args[0], factor])
        return infix(args[0], "*", f"({factor})")
    if let.rounded and let.op is Op.MUL:
        return _call(let, "rounded_product", args)
    if name := approximate_name(let, language):
        return _call(let, name, args)
    if let.op is Op.CAST:
        return _cast(args[0], let.operands, let.dtype, language)
    if let.op is Op.WHERE:
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if let.operands is DType.BOOL and let.op in BOOL_INFIX:
        return f"{args[0]} {BOOL_INFIX[let.op]} {args[1]}"
    if let.op in (Op.LOGICAL_NOT, Op.BITWISE_NOT) and let.operands is DType.BOOL:
        return f"!{args[0]}"
    if let.op is Op.BITWISE_NOT:
        return _narrowed(f"~{args[0]}", let)
    if let.op is Op.LOGICAL_NOT:
        return f"{args[0]} == {constant(0, let.operands)}"
    if let.op in LOGICAL:
        zero = constant(0, let.operands)
        return f"({args[0]} != {zero}) {BOOL_INFIX[let.op]} ({args[1]} != {zero})"
    if is_ratio(let, language):
        return _call(let, "ratio", args)
    if let.op in INFIX:
        return _narrowed(infix(args[0], INFIX[let.op], args[1]), let)
    if let.op is Op.NEG:
        return _narrowed(f"-{args[0]}", let)
    return _call(let, let.op.value, args)


def _narrowed(text: str, let: Let) -> str:
    """C++ calculates small integers as int: the result wraps back to its own type."""
    small = let.dtype in NARROW_INTEGERS
    return f"{STORAGE[let.dtype]}({text})" if small else text


def _call(let: Let, name: str, args: list[str]) -> str:
    dtype = let.operands
    attributes = [constant(getattr(let.attrs, a), dtype) for a in ATTRIBUTES.get(let.op, ())]
    return f"op::{name}({', '.join((*map(bare, args), *attributes))})"


def _cast(text: str, source: DType, result: DType, language: str) -> str:
    if result is DType.BOOL:
        return f"{text} != {constant(0, source)}"
    if source is DType.BOOL:
        # g++ 12 vectorises no conversion from bool.
        return f"{text} ? {constant(1, result)} : {constant(0, result)}"
    if result.is_half:
        return f"op::to_compute(op::from_compute<{STORAGE[result]}>({_as(text, source, result)}))"
    to_integer = source.is_float and not result.is_float
    function = "op::to_integer" if to_integer and language == "cpp" else "static_cast"
    if to_integer and result is DType.U8:
        # As PyTorch converts: through a signed integer, so that -1.0 gives 255.
        return f"static_cast<uint8_t>({function}<int64_t>({text}))"
    return _as(text, source, result, function)


def _as(text: str, source: DType, result: DType, function: str = "static_cast") -> str:
    same = compute_type(source) == compute_type(result)
    return text if same else f"{function}<{compute_type(result)}>({text})"


def storage_pieces(dtypes: set[DType]) -> set[str]:
    """Names of the device library's pieces that loads and stores of these types need."""
    needed = {"to_compute", "from_compute"} if any(d.is_half for d in dtypes) else set()
    if DType.F16 in dtypes:
        needed.add("half")
    if DType.BF16 in dtypes:
        needed.add("bfloat16")
    return needed


def dtypes_of(kernel: Kernel) -> set[DType]:
    """Every element type that a kernel names."""
    found = {buffer.dtype for buffer in kernel.buffers}
    return found | {let.dtype for let in kernel.element.body}


def load_text(dtype: DType, text: str) -> str:
    return f"op::to_compute({text})" if dtype.is_half else text


def store_text(dtype: DType, text: str) -> str:
    return f"op::from_compute<{STORAGE[dtype]}>({text})" if dtype.is_half else text


@dataclass(frozen=True, slots=True)
class Integers:
    """How a language spells the literals and names of integer expressions.

    `difference` names the function for what is subtracted from more than a constant can make up
    for (device/elements/positions.cuh); without one, it is spelled as a sum.
    """

    literal: Callable[[int], str]
    name: Callable[[str], str] = str
    difference: str = ""

    def text(self, value: Size) -> str:
        """An integer expression in C; the operands of its divisions are non-negative."""
        terms = terms_of(value)
        below = tuple((monomial, -factor) for monomial, factor in terms if monomial and factor < 0)
        if self.difference and below and dict(terms).get((), 0) > 0:
            above = tuple(term for term in terms if term[1] > 0)
            return f"{self.difference}({self._sum(above)}, {self._sum(below)})"
        return self._sum(terms)

    def _sum(self, terms: tuple[tuple[Monomial, int], ...]) -> str:
        text = ""
        for monomial, factor in terms:
            parts = [self._atom(atom) for atom in monomial]
            if abs(factor) != 1 or not parts:
                parts.append(self.literal(abs(factor)))
            product = " * ".join(parts)
            if text:
                text += f" {'-' if factor < 0 else '+'} {product}"
            else:
                text = f"-{product}" if factor < 0 else product
        return text or self.literal(0)

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol | Picked):
            return self.name(atom.name)
        sign = "/" if isinstance(atom, Quotient) else "%"
        numerator, denominator = self.text(atom.numerator), self.text(atom.denominator)
        return f"({grouped(numerator)} {sign} {grouped(denominator)})"


def index_text(value: Size, literal: Callable[[int], str]) -> str:
    """An integer expression in C whose symbols are variables of their own names."""
    return Integers(literal).text(value)


def whole_packets(multiples: Iterable[Size], lanes: int) -> list[str]:
    """The tests that sizes are whole numbers of packets."""
    return [f"{grouped(index_text(size, str))} % {lanes} == 0" for size in multiples]


def gathered_text(pick: Gather, index: str, extent: str, *more: str) -> str:
    """The place that an index tells, by the text of its number and that of the axis."""
    if pick.ignored is not None:
        index = f"{index} == {_integer(pick.ignored, DType.I64)} ? 0 : {index}"
    if pick.wraps:
        index = f"op::from_either_end({index}, {extent})"
    return f"op::place_of({', '.join((index, extent, *more))})"


def grouped(text: str) -> str:
    """In parentheses where it is more than one word."""
    return f"({text})" if " " in text else text


def named_in(names: tuple[str, ...], text: str) -> tuple[str, ...]:
    """The identifiers of `names` that stand in `text`."""
    return tuple(name for name in names if re.search(rf"\b{re.escape(name)}\b", text))
