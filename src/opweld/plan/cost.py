"""How fast: bytes, operations and the roofline that bounds a group."""

from __future__ import annotations

from ..ir.expr import Size, evaluate, product, substitute, symbols_of
from ..ir.graph import Node
from ..ir.ops import Kind, Op
from ..ir.plan import Estimate, Group
from ..target import Target

# Arithmetic instructions an element, counted in the machine code of the CUDA math functions
# (float32, sm_90); everything that is not listed is one instruction.
OP_FLOPS: dict[Op, int] = {
    Op.DIV: 10, Op.RECIPROCAL: 8, Op.SQRT: 8, Op.RSQRT: 4, Op.EXP: 8, Op.EXP2: 4, Op.EXPM1: 18,
    Op.LOG: 14, Op.LOG2: 14, Op.LOG10: 14, Op.LOG1P: 20, Op.SIN: 20, Op.COS: 20, Op.TAN: 30,
    Op.ASIN: 16, Op.ACOS: 18, Op.ATAN: 18, Op.SINH: 22, Op.COSH: 18, Op.TANH: 18, Op.ASINH: 24,
    Op.ACOSH: 24, Op.ATANH: 20, Op.ERF: 22, Op.ERFC: 34, Op.SIGMOID: 18, Op.GELU: 26,
    Op.GELU_TANH: 28, Op.SILU: 18, Op.MISH: 50, Op.SOFTPLUS: 34, Op.LOGSIGMOID: 34, Op.ELU: 22,
    Op.TANHSHRINK: 20, Op.POW: 60, Op.ATAN2: 30, Op.FMOD: 20, Op.REMAINDER: 24, Op.HYPOT: 20,
    Op.LOGADDEXP: 34, Op.XLOGY: 16, Op.DIV_FLOOR: 24, Op.DIV_TRUNC: 12, Op.LERP: 6,
}  # fmt: skip


def estimate(group: Group, target: Target) -> Estimate:
    """Roofline figures of a pointwise group: each operand read once, each result written once."""
    num_bytes = sum((_bytes_read(node, group) for node in group.inputs), start=0)
    num_bytes = num_bytes + sum((node.type.size_bytes for node in group.outputs), start=0)
    flops: Size = 0
    for node in group.nodes:
        if node.kind is Kind.POINTWISE:
            flops = flops + node.type.num_elems * OP_FLOPS.get(node.op, 1)
    return Estimate(num_bytes, flops, _limit(num_bytes, flops, target))


def _bytes_read(operand: Node, group: Group) -> Size:
    """An operand is read whole, or as much of it as the iteration space has elements."""
    space = product(group.outputs[0].type.shape)
    whole, part = operand.type.size_bytes, space * operand.type.dtype.itemsize_bytes
    names = symbols_of(whole) | symbols_of(part)
    typical = dict.fromkeys(names, TYPICAL_SIZE)
    return whole if evaluate(whole, typical) <= evaluate(part, typical) else part


TYPICAL_SIZE = 1024  # stands for a symbolic size where two polynomials must be compared


def _limit(num_bytes: Size, flops: Size, target: Target) -> str:
    values = dict.fromkeys(symbols_of(num_bytes) | symbols_of(flops), TYPICAL_SIZE)
    memory_s = evaluate(num_bytes, values) / target.copy_bytes_per_s
    compute_s = evaluate(flops, values) / target.pointwise_flops_per_s
    return "memory" if memory_s >= compute_s else "compute"


def bytes_at(group: Group, sizes: dict[str, int]) -> int:
    """The bytes of a group when its symbols have these sizes."""
    return evaluate(substitute(group.estimate.bytes, {}), sizes)
