from __future__ import annotations

import numpy as np
import pytest

from opweld.ir.attrs import NO_ATTRS, CallAttrs, CastAttrs, Operand, PermuteAttrs
from opweld.ir.check import check
from opweld.ir.graph import Arena
from opweld.ir.numpy.interpret import interpret
from opweld.ir.ops import Op
from opweld.ir.rules.pattern import Computed, Const, Var, call, matches
from opweld.ir.rules.rewrite import (
    Condition,
    Domain,
    IllTypedRule,
    Numerics,
    Rule,
    RulesDoNotEnd,
    rewrite,
)
from opweld.ir.text import to_text
from opweld.ir.types import DType

from .graphs import BATCH, graph, tensor

x, y, z, c = Var("x"), Var("y"), Var("z"), Const("c")
exp, neg, relu, tanh = call(Op.EXP), call(Op.NEG), call(Op.RELU), call(Op.TANH)
where = call(Op.WHERE)
EXACT = Numerics.EXACT


def rewritten(rules, *outputs, arena, **extra):
    result = rewrite(graph(*outputs), tuple(rules), arena, **extra)
    check(result.graph)
    return result


def test_numerics_are_ordered():
    assert Numerics.EXACT < Numerics.VALUE < Numerics.REORDER < Numerics.APPROX


def test_a_rule_prints():
    rule = Rule("r", (x + -y) * 2.0, relu(x - y), Numerics.VALUE, Condition("it rains", bool))
    assert str(rule) == "r: (x + (-y)) * 2.0 -> relu(x - y) if it rains  [value]"
    typed = Rule("p", call(Op.PERMUTE)(x, attrs="p"), x**2, EXACT, domain=Domain.FLOAT)
    assert str(typed) == "p: permute[p](x) -> x ** 2 for floats  [exact]"


def test_commutative_operations_match_both_ways_round():
    arena = Arena()
    a, b = tensor(arena, "a", 4), tensor(arena, "b", 4)
    product = arena.make(Op.MUL, arena.const(2.0, DType.F32), arena.make(Op.EXP, a))
    assert list(matches(exp(x) * c, product, {})) == [
        {"x": a, "c": product.inputs[0]},
    ]
    quotient = arena.make(Op.DIV, arena.const(2.0, DType.F32), a)
    assert list(matches(x / c, quotient, {})) == []
    total = arena.make(Op.ADD, a, b)
    assert [found["x"] for found in matches(x + y, total, {})] == [a, b]


def test_a_variable_stands_for_one_node():
    arena = Arena()
    a, b = tensor(arena, "a", 4), tensor(arena, "b", 4)
    assert list(matches(x * x, arena.make(Op.MUL, a, a), {})) == [{"x": a}]
    assert list(matches(x * x, arena.make(Op.MUL, a, b), {})) == []


def test_numbers_are_told_from_other_zeros_and_types():
    arena = Arena()
    a, flag = tensor(arena, "a", 4), tensor(arena, "f", 4, dtype=DType.BOOL)
    count = tensor(arena, "n", 4, dtype=DType.I32)

    def fits(pattern, node):
        return bool(list(matches(pattern, node, {})))

    minus = arena.make(Op.ADD, a, arena.const(-0.0, DType.F32))
    assert not fits(x + 0.0, minus)
    assert fits(x + -0.0, minus)
    assert fits(x * 1.0, arena.make(Op.MUL, count, arena.const(1, DType.I32)))
    assert not fits(x * 1.0, arena.make(Op.MUL, flag, arena.const(True, DType.BOOL)))
    assert not fits(x * c, arena.make(Op.MUL, a, arena.const(BATCH, DType.F32)))


def test_what_a_rule_makes_is_rewritten_again():
    arena = Arena()
    a = tensor(arena, "a", 4)
    four = (Rule("n-n", neg(neg(x)), x, EXACT), Rule("sub", x - y, x + -y, EXACT))
    node = arena.make(Op.SUB, a, arena.make(Op.NEG, arena.make(Op.EXP, a)))
    result = rewritten(four, node, arena=arena)
    assert to_text(result.graph) == (
        "graph small\n%0 f32[4] = input a\n%1 f32[4] = exp %0\n%2 f32[4] = add %0 %1\nreturn %2\n"
    )
    assert result.fired == (("sub", EXACT, 1), ("n-n", EXACT, 1))


def test_dead_inputs_stay_and_dead_nodes_go():
    arena = Arena()
    a, b = tensor(arena, "a", 4), tensor(arena, "b", 4)
    node = arena.make(Op.SUB, arena.make(Op.ADD, a, b), arena.make(Op.EXP, b))
    rule = Rule("forget", (x + y) - exp(y), exp(x), EXACT)
    result = rewritten((rule,), node, arena=arena)
    assert [n.op for n in result.graph.nodes()] == [Op.INPUT, Op.INPUT, Op.EXP]


def test_constants_take_the_dtype_beside_them():
    arena = Arena()
    n, h = tensor(arena, "n", 4, dtype=DType.I32), tensor(arena, "h", 4, dtype=DType.F16)
    rule = Rule("double", x + x, x * 2, EXACT)
    outputs = (arena.make(Op.ADD, n, n), arena.make(Op.ADD, h, h))
    result = rewritten((rule,), *outputs, arena=arena)
    constants = [node.inputs[1] for node in result.graph.outputs]
    assert [(k.type.dtype, k.attrs.value) for k in constants] == [(DType.I32, 2), (DType.F16, 2.0)]
    assert isinstance(constants[1].attrs.value, float)


def test_a_smaller_result_is_broadcast():
    arena = Arena()
    a, flag = tensor(arena, "a", 4), tensor(arena, "f", 3, 1, dtype=DType.BOOL)
    node = arena.make(Op.WHERE, flag, a, a)
    result = rewritten((Rule("same", where(z, x, x), x, EXACT),), node, arena=arena)
    values = np.arange(4, dtype=np.float32)
    got = interpret(result.graph, {"a": values, "f": np.ones((3, 1), bool)})
    assert np.array_equal(got, np.broadcast_to(values, (3, 4)))
    assert result.graph.outputs[0].op is Op.EXPAND


def test_a_result_of_another_type_is_refused():
    arena = Arena()
    a = tensor(arena, "a", 4)
    rule = Rule("bad", exp(x), call(Op.CAST)(x, attrs=Computed("f64", lambda _: F64)), EXACT)
    with pytest.raises(IllTypedRule, match=r"bad makes f64\[4\] of f32\[4\]"):
        rewritten((rule,), arena.make(Op.EXP, a), arena=arena)


F64 = CastAttrs(DType.F64)


def test_domains():
    arena = Arena()
    half, count = tensor(arena, "h", 4, dtype=DType.BF16), tensor(arena, "n", 4, dtype=DType.I32)
    outputs = (arena.make(Op.ADD, half, half), arena.make(Op.ADD, count, count))
    for domain, expected in [
        (Domain.ANY, 2),
        (Domain.NUMBER, 2),
        (Domain.FLOAT, 1),
        (Domain.HALF, 1),
        (Domain.INTEGER, 1),
        (Domain.BITS, 1),
    ]:
        rule = Rule("double", x + x, x * 2, EXACT, domain=domain)
        result = rewritten((rule,), *outputs, arena=arena)
        assert sum(count for *_, count in result.fired) == expected, domain


def test_rules_that_undo_one_another_end_with_their_names():
    arena = Arena()
    rules = (Rule("there", exp(x), tanh(x), EXACT), Rule("back", tanh(x), exp(x), EXACT))
    with pytest.raises(RulesDoNotEnd, match=r"undo one another: .*there.*"):
        rewritten(rules, arena.make(Op.EXP, tensor(arena, "a", 4)), arena=arena)


def test_a_rule_that_wraps_its_own_result_ends_with_its_name():
    arena = Arena()
    rule = Rule("wrap", exp(x), exp(x) * 1.0, EXACT)
    with pytest.raises(RulesDoNotEnd, match="wrap"):
        rewritten((rule,), arena.make(Op.EXP, tensor(arena, "a", 4)), arena=arena)


def test_a_rule_that_grows_for_ever_runs_out_of_fuel():
    arena = Arena()
    rule = Rule("grow", exp(x), exp(x * 1.0), EXACT)
    with pytest.raises(RulesDoNotEnd, match=r"out of fuel: grow \(51 times\)"):
        rewritten((rule,), arena.make(Op.EXP, tensor(arena, "a", 4)), arena=arena, fuel=50)


def test_origins_go_to_what_is_made():
    arena = Arena()
    a = tensor(arena, "a", 4)
    inner = arena.make(Op.EXP, a)
    node = arena.make(Op.SUB, inner, inner)
    before = graph(node, origins=((inner.serial, ("m.py:1", "e")), (node.serial, ("m.py:2", "s"))))
    rule = Rule("neg", x - y, x + -y, EXACT)
    after = rewrite(before, (rule,), arena).graph
    assert to_text(after) == (
        "graph small\n"
        "%0 f32[4] = input a\n"
        "%1 f32[4] = exp %0  # m.py:1\n"
        "%2 f32[4] = neg %1  # m.py:2\n"
        "%3 f32[4] = add %1 %2  # m.py:2\n"
        "return %3\n"
    )


def test_calls_are_made_again_once_on_rewritten_operands():
    arena = Arena()
    a = tensor(arena, "a", 4)
    double = arena.make(Op.NEG, arena.make(Op.NEG, a))
    call_node = arena.call(
        (double,), CallAttrs("aten.two", (Operand(0),), (), (a.type, a.type), "no row")
    )
    outputs = tuple(arena.item(call_node, k, a.type) for k in range(2))
    result = rewritten((Rule("n-n", neg(neg(x)), x, EXACT),), *outputs, arena=arena)
    first, second = result.graph.outputs
    assert first.inputs[0] is second.inputs[0]
    assert first.inputs[0].inputs == (a,)


def test_calls_keep_their_order():
    arena = Arena()
    a = tensor(arena, "a", 4)

    def draw(name, operand):
        attrs = CallAttrs(name, (Operand(0),), (), (a.type,), "random")
        return arena.call((operand,), attrs)

    first = draw("first", arena.make(Op.NEG, arena.make(Op.NEG, a)))
    second, third = draw("second", a), draw("third", a)
    node = arena.make(Op.SUB, third, arena.make(Op.MUL, second, first))
    result = rewritten((Rule("n-n", neg(neg(x)), x, EXACT),), node, arena=arena)
    calls = sorted((n.serial, n.attrs.target) for n in result.graph.nodes() if n.op is Op.CALL)
    assert [target for _, target in calls] == ["first", "second", "third"]


def test_a_deep_graph_needs_no_recursion():
    arena = Arena()
    node = tensor(arena, "a", 4)
    for _ in range(4000):
        node = arena.make(Op.TANH, arena.make(Op.NEG, arena.make(Op.NEG, node)))
    result = rewrite(graph(node), (Rule("n-n", neg(neg(x)), x, EXACT),), arena)
    assert len(result.graph.nodes()) == 4001
    assert result.fired == (("n-n", EXACT, 4000),)


def test_captured_attributes_are_given_back():
    arena = Arena()
    a = tensor(arena, "a", 2, 3)
    node = arena.make(Op.EXP, arena.make(Op.PERMUTE, a, attrs=PermuteAttrs((1, 0))))
    permute = call(Op.PERMUTE)
    rule = Rule("sink", exp(permute(x, attrs="p")), permute(exp(x), attrs="p"), EXACT)
    (output,) = rewritten((rule,), node, arena=arena).graph.outputs
    assert (output.op, output.attrs) == (Op.PERMUTE, PermuteAttrs((1, 0)))
    assert output.inputs[0].attrs is NO_ATTRS
