"""Every rule is held to its promise: values by NumPy and by PyTorch, derivatives by autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.rules.instances import DTYPES, instances
from tests.rules.promises import broken_gradients, broken_values, broken_values_in_torch

from opweld.ir.ops import Op
from opweld.ir.rules.pattern import Const, Number, Var, call
from opweld.ir.rules.rewrite import Domain, Numerics, Rule
from opweld.ir.types import DType
from opweld.simplify.rules import RULES

FLOATS = (DType.F32, DType.F64)
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each_rule
def test_rule_is_tried(rule):
    fired = [dtype for dtype in DTYPES if next(instances(rule, dtype), None)]
    assert fired, f"no case of {rule}"
    if fired != [DType.BOOL] and rule.domain.value == "floats":
        assert {DType.F32, DType.F64, DType.F16, DType.BF16} <= set(fired)


@each_rule
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.value)
def test_values_keep_the_promise(rule, dtype):
    assert list(broken_values(rule, dtype)) == []


@each_rule
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
def test_values_keep_the_promise_in_pytorch(rule, dtype):
    assert list(broken_values_in_torch(rule, dtype)) == []


@each_rule
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
def test_derivatives_are_the_same(rule, dtype):
    assert list(broken_gradients(rule, dtype)) == []


def test_names_are_distinct():
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)


x, y, c = Var("x"), Var("y"), Const("c")
relu, clamp_min, sqrt = call(Op.RELU), call(Op.CLAMP_MIN), call(Op.SQRT)
amax, amin = call(Op.AMAX), call(Op.AMIN)
EXACT, VALUE, REORDER = Numerics.EXACT, Numerics.VALUE, Numerics.REORDER

FLOAT = Domain.FLOAT

WRONG_VALUES = (
    Rule("add-zero-exact", x + 0.0, x, EXACT, domain=FLOAT),
    Rule("neg-sub", -(x - y), y - x, EXACT, domain=FLOAT),
    Rule("mul-zero", x * 0.0, clamp_min(clamp_min(x, 0.0) * 0.0, 0.0), VALUE, domain=FLOAT),
    Rule("sub-add", (x + y) - y, x, REORDER, domain=FLOAT),
    Rule("nearly-three", x * 3.0, x * 3.00001, REORDER, domain=FLOAT),
    Rule("div-any", x / c, x * (1.0 / c), EXACT, domain=FLOAT),
    Rule("sqrt-square", sqrt(x * x), x, VALUE, domain=FLOAT),
    Rule("sub-self-any", x - x, Number(0.0), VALUE, domain=FLOAT),
    Rule("softmax-one-any", call(Op.EXP)(x - x), (x - x) * 0.0 + 1.0001, VALUE, domain=FLOAT),
    Rule("amin-amax", amin(relu(x), attrs="p"), relu(amax(x, attrs="p")), VALUE, domain=FLOAT),
    Rule("sum-amax", call(Op.SUM)(x, attrs="p"), amax(x, attrs="p"), VALUE, domain=FLOAT),
)
WRONG_DERIVATIVES = (
    Rule("clamp-to-relu", clamp_min(x, 0.0), relu(x), EXACT, domain=FLOAT),
    Rule("relu-to-maximum", relu(x), call(Op.MAXIMUM)(x, 0.0), EXACT, domain=FLOAT),
    Rule(
        "amax-relu-to-maximum",
        amax(relu(x), attrs="p"),
        call(Op.MAXIMUM)(amax(x, attrs="p"), 0.0),
        VALUE,
        domain=FLOAT,
    ),
)


@pytest.mark.parametrize("rule", WRONG_VALUES, ids=lambda rule: rule.name)
def test_a_wrong_rule_is_caught(rule):
    assert list(broken_values(rule, DType.F32))


@pytest.mark.parametrize("rule", WRONG_DERIVATIVES, ids=lambda rule: rule.name)
def test_a_wrong_derivative_is_caught(rule):
    assert list(broken_values(rule, DType.F32)) == []
    assert list(broken_gradients(rule, DType.F32))


def test_promises_are_not_too_weak():
    """add-zero holds for values, and subtraction is negation up to the sign of zero."""
    weaker = [replace(rule, numerics=VALUE) for rule in WRONG_VALUES[:2]]
    assert [list(broken_values(rule, DType.F32)) for rule in weaker] == [[], []]
