"""Every row's NumPy meaning against PyTorch, on hard values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.rules.hard_values import hard_operands
from tests.rules.torch_ops import TORCH, call_torch

from opweld.ir.attrs import (
    NO_ATTRS,
    BoundsAttrs,
    CatAttrs,
    EluAttrs,
    FlipAttrs,
    GatherAttrs,
    LambdaAttrs,
    NanToNumAttrs,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ScanAttrs,
    ShapeAttrs,
    SliceAttrs,
    SlopeAttrs,
    SoftplusAttrs,
    ThresholdAttrs,
    WindowAttrs,
)
from opweld.ir.infer import TypeRule
from opweld.ir.numpy.interpret import NUMPY_DTYPES
from opweld.ir.numpy.meaning import round_to_bfloat16
from opweld.ir.ops import OPS, Kind, Op
from opweld.ir.types import DType, TensorType

ATTRS = {
    Op.NAN_TO_NUM: (NanToNumAttrs(0.0, 3e38, -3e38), NanToNumAttrs(1.0, 2.0, -3.0)),
    Op.LEAKY_RELU: (SlopeAttrs(0.01), SlopeAttrs(-0.5), SlopeAttrs(0.0)),
    Op.ELU: (EluAttrs(1.0, 1.0, 1.0), EluAttrs(1.6732632, 1.050701, 1.0), EluAttrs(1.0, 1.0, 0.5)),
    Op.SOFTPLUS: (SoftplusAttrs(1.0, 20.0), SoftplusAttrs(2.0, 3.0)),
    Op.THRESHOLD: (ThresholdAttrs(0.0, 0.0), ThresholdAttrs(0.5, -3.0)),
    Op.HARDTANH: (BoundsAttrs(-1.0, 1.0), BoundsAttrs(0.0, 6.0)),
    Op.SOFTSHRINK: (LambdaAttrs(0.5), LambdaAttrs(0.0)),
    Op.HARDSHRINK: (LambdaAttrs(0.5), LambdaAttrs(0.0)),
}
POINTWISE = [op for op, row in OPS.items() if row.kind is Kind.POINTWISE and op is not Op.CAST]
CASES = [(op, attrs) for op in POINTWISE for attrs in ATTRS.get(op, (NO_ATTRS,))]
FLOATS = (DType.F32, DType.F64)
INTS = (DType.U8, DType.I8, DType.I16, DType.I32, DType.I64)

UNDEFINED_AT_ZERO = (Op.DIV_FLOOR, Op.DIV_TRUNC, Op.FMOD, Op.REMAINDER)
SHIFTS = (Op.SHIFT_LEFT, Op.SHIFT_RIGHT)

# Relative error in units of the dtype's epsilon. NumPy and PyTorch round most functions within an
# ulp or two of each other; these rows cancel, or are composed of several roundings.
ULPS = 4.0
WIDER_ULPS = {Op.TAN: 8.0, Op.POW: 8.0, Op.LOGADDEXP: 8.0, Op.LERP: 8.0}
ABSOLUTE = {
    Op.GELU: 4.0, Op.GELU_TANH: 4.0, Op.TANHSHRINK: 4.0, Op.MISH: 4.0, Op.LOGSIGMOID: 1.0,
    Op.LERP: 8.0, Op.ADDCMUL: 1.0, Op.SOFTPLUS: 1.0, Op.SIN: 1.0, Op.COS: 1.0, Op.LOGADDEXP: 1.0,
}  # fmt: skip


def takes(op: Op, dtype: DType, attrs) -> bool:
    """Whether PyTorch takes operands of this dtype and gives the dtype that the row infers."""
    row = OPS[op]
    operands = [torch.ones(2, dtype=getattr(torch, torch_name(dtype)))] * row.arity
    if op is Op.WHERE:
        operands[0] = torch.tensor([True, False])
    try:
        result = call_torch(op, operands, attrs)
    except (RuntimeError, NotImplementedError):
        return False
    return result.dtype in (operands[-1].dtype, torch.bool)


def torch_name(dtype: DType) -> str:
    return str(torch.from_numpy(np.empty(0, NUMPY_DTYPES[dtype])).dtype).removeprefix("torch.")


def operands_for(op: Op, dtype: DType) -> tuple[np.ndarray, ...]:
    operands = hard_operands(OPS[op].arity, dtype)
    if op is Op.WHERE:
        return (operands[0] > 0, *operands[1:])
    if op in UNDEFINED_AT_ZERO and not dtype.is_float:
        # The least integer divided by -1 does not fit either.
        least = np.iinfo(operands[0].dtype).min
        defined = (operands[1] != 0) & ~((operands[0] == least) & (operands[1] == -1))
        return tuple(operand[defined] for operand in operands)
    if op in (Op.FMOD, Op.REMAINDER):
        # PyTorch's vector code loses quotients that have more bits than the significand.
        with np.errstate(all="ignore"):
            exact = ~(np.abs(operands[0] / operands[1]) > 1e6)
        return tuple(operand[exact] for operand in operands)
    if op is Op.LERP:
        # PyTorch fuses the product and the sum, so its intermediate results do not overflow.
        huge = np.finfo(operands[0].dtype).max / 4
        mild = (np.abs(operands[0]) < huge) & (np.abs(operands[1]) < huge) & (operands[2] < huge)
        return tuple(operand[mild] for operand in operands)
    if op in SHIFTS:
        return tuple(operand[operands[1] >= 0] for operand in operands)
    return operands


def compare(op: Op, dtype: DType, attrs, numpy_result: np.ndarray, expected: np.ndarray, operands):
    assert numpy_result.dtype == expected.dtype
    if not dtype.is_float or expected.dtype == np.bool_:
        bad = numpy_result != expected
    else:
        eps = np.finfo(expected.dtype).eps
        near = np.abs(numpy_result - expected) <= (
            WIDER_ULPS.get(op, ULPS) * eps * np.abs(expected)
            + ABSOLUTE.get(op, 0.0) * eps
            + 2 * np.finfo(expected.dtype).smallest_subnormal
        )
        same = (numpy_result == expected) | (np.isnan(numpy_result) & np.isnan(expected))
        bad = ~(near | same)
    where = np.flatnonzero(bad)[:8]
    rows = [(*(operand[i] for operand in operands), numpy_result[i], expected[i]) for i in where]
    assert not len(where), f"{op.value} {attrs}: operands, NumPy, PyTorch: {rows} ({bad.sum()})"


TAKEN = [
    (op, attrs, dtype)
    for op, attrs in CASES
    for dtype in (*FLOATS, *INTS, DType.BOOL)
    if takes(op, dtype, attrs)
]


@pytest.mark.parametrize(("op", "attrs", "dtype"), TAKEN, ids=lambda v: getattr(v, "value", str(v)))
def test_row_means_what_pytorch_computes(op, attrs, dtype):
    operands = operands_for(op, dtype)
    with np.errstate(all="ignore"):
        row = OPS[op].evaluate
        extra = (attrs,) if type(attrs).__dataclass_fields__ else ()
        result = np.asarray(row(*operands, *extra))
    # oneDNN's float32 gelu gives NaN for infinity; PyTorch's own does not.
    with torch.backends.mkldnn.flags(enabled=False):
        expected = call_torch(op, [torch.from_numpy(operand) for operand in operands], attrs)
    compare(op, dtype, attrs, result, expected.numpy(), operands)


@pytest.mark.parametrize("exponent", [2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 1.0, 0.0, 4.0, -3.0, 0.3])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.value)
def test_scalar_powers_are_pytorchs(exponent, dtype):
    x = hard_operands(1, dtype)[0]
    with np.errstate(all="ignore"):
        result = OPS[Op.POW].evaluate(x, np.asarray(exponent, x.dtype))
    expected = torch.pow(torch.from_numpy(x), exponent).numpy()
    compare(Op.POW, dtype, exponent, result, expected, (x,))


@pytest.mark.parametrize("op", [Op.CLAMP_MIN, Op.CLAMP_MAX], ids=lambda op: op.value)
@pytest.mark.parametrize("bound", [0.0, -1.0, np.inf, -np.inf, np.nan])
def test_clamp_by_a_scalar(op, bound):
    x = hard_operands(1, DType.F32)[0]
    result = OPS[op].evaluate(x, np.float32(bound))
    expected = call_torch(op, [torch.from_numpy(x), torch.tensor(bound)], NO_ATTRS).numpy()
    compare(op, DType.F32, bound, result, expected, (x,))


def test_bfloat16_rounding_is_pytorchs():
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, size=20000, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), hard_operands(1, DType.F32)[0]])
    expected = torch.from_numpy(x).to(torch.bfloat16).float().numpy()
    result = round_to_bfloat16(x)
    assert np.array_equal(result, expected, equal_nan=True)
    assert np.array_equal(np.signbit(result[x == x]), np.signbit(expected[x == x]))


def test_bfloat16_rounding_keeps_the_shape():
    for shape in ((), (0,), (2, 3)):
        x = np.full(shape, 0.3, np.float32)
        assert round_to_bfloat16(x).shape == shape
        assert np.all(round_to_bfloat16(x) == 0.30078125)


def rows_of(dtype: DType) -> np.ndarray:
    """(3, 5, 4) elements: ordinary ones, some equal, and rows with NaN, infinities and zeros."""
    rng = np.random.default_rng(5)
    x = np.asarray(rng.integers(-3, 4, (3, 5, 4)), np.float64)
    if dtype.is_float:
        x = x + np.where(rng.random(x.shape) < 0.5, rng.standard_normal(x.shape), 0.0)
        x[0, :, 0] = (1.0, np.nan, np.inf, np.nan, -np.inf)
        x[0, :, 1] = (-np.inf, 0.0, -0.0, np.inf, 1.0)
        x[1, :, 2] = (-0.0, -0.0, -0.0, -0.0, -0.0)
        x[2, :, 3] = -np.inf
    return (
        np.abs(x).astype(NUMPY_DTYPES[dtype])
        if dtype is DType.U8
        else x.astype(NUMPY_DTYPES[dtype])
    )


TRUTHS = (Op.ANY, Op.ALL)
OF_FLOATS = (Op.MEAN, Op.SUMEXP, Op.DEVSQ)


def _operands(op):
    return (DType.BOOL,) if op in TRUTHS else FLOATS if op in OF_FLOATS else (*FLOATS, *INTS)


FOLDS = [op for op, row in OPS.items() if row.kind is Kind.REDUCTION]
REDUCED = [
    (op, ReduceAttrs(axes), dtype)
    for op in FOLDS
    for axes in ((1,), (2,), (0, 2), (0, 1, 2))
    for dtype in _operands(op)
]
REDUCED += [(op, ReduceAttrs((1,), True), DType.F32) for op in (Op.AMAX, Op.AMIN)]


@pytest.mark.parametrize(
    ("op", "attrs", "dtype"), REDUCED, ids=lambda v: getattr(v, "value", str(v))
)
def test_reductions(op, attrs, dtype):
    x = rows_of(dtype)
    with np.errstate(all="ignore"):
        result = OPS[op].evaluate(x, attrs)
    expected = call_torch(op, [torch.from_numpy(x)], attrs)
    torch.testing.assert_close(torch.from_numpy(result), expected, equal_nan=True)


def test_every_reduction_is_compared():
    assert {op for op, *_ in REDUCED} == set(FOLDS)


OF_ALL, OF_SUMS = (
    (ScanAttrs(1), ScanAttrs(0), ScanAttrs(2)),
    (
        ScanAttrs(1, reverse=True),
        ScanAttrs(1, exclusive=True),
        ScanAttrs(2, reverse=True, exclusive=True),
    ),
)
SCANS = [op for op, row in OPS.items() if row.kind is Kind.SCAN]
SCANNED = [
    (op, attrs, dtype)
    for op in SCANS
    for attrs in (*OF_ALL, *(OF_SUMS if op in (Op.CUMSUM, Op.CUMPROD) else ()))
    for dtype in (FLOATS if op is Op.LOGCUMSUMEXP else (*FLOATS, *INTS))
]
SCANNED += [(op, OF_SUMS[0], DType.F32) for op in (Op.CUMMAX, Op.CUMMIN, Op.LOGCUMSUMEXP)]


@pytest.mark.parametrize(
    ("op", "attrs", "dtype"), SCANNED, ids=lambda v: getattr(v, "value", str(v))
)
def test_scans(op, attrs, dtype):
    x = rows_of(dtype)
    with np.errstate(all="ignore"):
        result = OPS[op].evaluate(x, attrs)
    expected = call_torch(op, [torch.from_numpy(x)], attrs)
    assert result.dtype == (np.int64 if op.value.endswith("place") else x.dtype)
    torch.testing.assert_close(torch.from_numpy(result.copy()), expected, equal_nan=True)


def test_scans_of_nothing_before_an_element_are_refused():
    operand = (TensorType(DType.F32, (2, 3)),)
    for op in (Op.CUMMAX, Op.CUMMIN_PLACE, Op.LOGCUMSUMEXP):
        with pytest.raises(TypeRule, match="no elements"):
            OPS[op].infer(operand, ScanAttrs(1, exclusive=True))
    with pytest.raises(TypeRule, match="counted"):
        OPS[Op.CUMMAX_PLACE].infer(operand, ScanAttrs(1, reverse=True))
    with pytest.raises(TypeRule, match="no axis"):
        OPS[Op.CUMSUM].infer(operand, ScanAttrs(2))


VIEWS = [
    (Op.PERMUTE, PermuteAttrs((2, 0, 1))),
    (Op.EXPAND, ShapeAttrs((5, 2, 3, 4))),
    (Op.RESHAPE, ShapeAttrs((4, 6))),
    (Op.SLICE, SliceAttrs(2, 1, 2, 2)),
    (Op.SLICE, SliceAttrs(0, 1, 1, 0)),
    (Op.FLIP, FlipAttrs((0, 2))),
    (Op.PAD, PadAttrs((1, 0, 2), (0, 3, 1), 7.0)),
    (Op.WINDOW, WindowAttrs(2, 2, 1, 2, 2)),
    (Op.WINDOW, WindowAttrs(1, 2, 2, 1)),
]


@pytest.mark.parametrize(("op", "attrs"), VIEWS, ids=lambda v: getattr(v, "value", str(v)))
def test_views(op, attrs):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    expected = call_torch(op, [torch.from_numpy(x)], attrs).numpy()
    assert np.array_equal(OPS[op].evaluate(x, attrs), expected)


def test_cat():
    x, y = np.arange(6.0).reshape(2, 3), -np.arange(4.0).reshape(2, 2)
    result = OPS[Op.CAT].evaluate(x, y, CatAttrs(1))
    assert np.array_equal(result, np.concatenate([x, y], 1))


GATHERS = [
    ((2, 3, 4), (2, 5, 4), GatherAttrs(1)),
    ((2, 3, 4), (1, 2, 1), GatherAttrs(1, wraps=True)),
    ((1, 3, 4), (5, 2, 1), GatherAttrs(1)),
    ((3,), (0,), GatherAttrs(0)),
    ((2, 3), (2, 1), GatherAttrs(1, ignored=-100)),
]


@pytest.mark.parametrize(("source", "numbers", "attrs"), GATHERS, ids=str)
def test_pick(source, numbers, attrs):
    x = np.random.default_rng(0).standard_normal(source)
    index = np.random.default_rng(1).integers(-3 if attrs.wraps else 0, 3, numbers)
    if attrs.ignored is not None:
        index[0] = attrs.ignored
    expected = call_torch(Op.GATHER, [torch.from_numpy(x), torch.from_numpy(index)], attrs)
    result = OPS[Op.GATHER].evaluate(x, index, attrs)
    types = (TensorType(DType.F64, source), TensorType(DType.I64, numbers))
    assert OPS[Op.GATHER].infer(types, attrs).shape == result.shape
    assert np.array_equal(result, expected.numpy())


@pytest.mark.parametrize("number", [3, -1, -4])
def test_a_number_of_no_element(number):
    with pytest.raises(IndexError, match="out of range for axis 0 of 3"):
        OPS[Op.GATHER].evaluate(np.zeros(3), np.array([number]), GatherAttrs(0, wraps=number == -4))


def test_every_row_but_sources_and_calls_has_a_meaning_in_pytorch():
    assert {op for op, row in OPS.items() if row.evaluate is not None} == set(TORCH)


def test_every_pointwise_row_is_compared():
    assert {op for op, *_ in TAKEN} == set(POINTWISE)
