from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.ir.attrs import (
    NO_ATTRS,
    CallAttrs,
    CatAttrs,
    FlipAttrs,
    Operand,
    PadAttrs,
    PermuteAttrs,
    SliceAttrs,
    WindowAttrs,
)
from opweld.ir.check import InvalidCapture, InvalidGraph, InvalidKernel, InvalidPlan, check
from opweld.ir.contract import Capture, Contract, InputFact, SymbolFact, Variant
from opweld.ir.expr import symbol
from opweld.ir.graph import Arena, Leaf, Node
from opweld.ir.kernels.kernel import Access, Index, Let, Loop, Name, Pointwise
from opweld.ir.ops import Op
from opweld.ir.plan import Estimate, Group, GroupKind, Plan
from opweld.ir.types import DType, TensorType

from .graphs import BATCH, graph, tensor, weight
from .test_text import small_graph, small_kernel


def unchecked(op: Op, *inputs: Node, attrs=NO_ATTRS, type=None, serial=1000) -> Node:
    """A node that no row has seen."""
    return Node(op, inputs, attrs, type or inputs[0].type, serial)


def test_a_sound_graph_passes():
    check(small_graph())


def test_type_that_the_row_does_not_give():
    x = tensor(Arena(), "x", 4)
    wrong = unchecked(Op.EXP, x, type=TensorType(DType.F32, (5,)))
    with pytest.raises(InvalidGraph, match=r"%1000:exp: has type f32\[5\], its row says f32\[4\]"):
        check(graph(wrong))


def test_operands_that_differ_in_dtype():
    arena = Arena()
    x, y = tensor(arena, "x", 4), tensor(arena, "y", 4, dtype=DType.F64)
    with pytest.raises(InvalidGraph, match="operands differ in dtype: f32, f64"):
        check(graph(unchecked(Op.ADD, x, y)))


def test_wrong_arity_and_attributes():
    x = tensor(Arena(), "x", 4)
    with pytest.raises(InvalidGraph, match="has 1 operands, its row says 2"):
        check(graph(unchecked(Op.ADD, x)))
    with pytest.raises(InvalidGraph, match="has NoAttrs, not PermuteAttrs"):
        check(graph(unchecked(Op.PERMUTE, x)))


def test_a_cycle():
    x = tensor(Arena(), "x", 4)
    node = unchecked(Op.ADD, x, x)
    object.__setattr__(node, "inputs", (x, node))
    with pytest.raises(InvalidGraph, match="needs its own result"):
        check(replace(small_graph(), outputs=(node,)))


def test_nodes_of_two_arenas():
    x, y = tensor(Arena(), "x", 4), tensor(Arena(), "y", 4)
    with pytest.raises(InvalidGraph, match="two arenas"):
        node = unchecked(Op.ADD, x, y)
        check(replace(small_graph(), inputs=(x, y), weights=(), outputs=(node,)))


def test_inputs_and_weights_are_listed():
    small = small_graph()
    with pytest.raises(InvalidGraph, match="list of inputs disagree"):
        check(replace(small, inputs=()))
    with pytest.raises(InvalidGraph, match="list of weights disagree"):
        check(replace(small, weights=small.inputs))


def test_two_inputs_of_one_access():
    arena = Arena()
    x, y = tensor(arena, "x", 4), tensor(arena, "x", 5)
    with pytest.raises(InvalidGraph, match="two inputs have the same access: x, x"):
        check(graph(x, y))


@pytest.mark.parametrize("structure", [Leaf(1), ("tuple", ()), ("tuple", (Leaf(0), Leaf(3)))])
def test_structure_that_does_not_fit_the_outputs(structure):
    with pytest.raises(InvalidGraph, match="the structure has leaves"):
        check(replace(small_graph(), structure=structure))


def test_unknown_structure():
    with pytest.raises(InvalidGraph, match="unknown part 'set'"):
        check(replace(small_graph(), structure=("set", (Leaf(0),))))


@pytest.mark.parametrize(
    ("op", "attrs", "shape", "reason"),
    [
        (Op.SLICE, SliceAttrs(0, 2, 1, 3), (3,), "element 4 of an axis of 4"),
        (Op.SLICE, SliceAttrs(2, 0, 1, 3), (4,), "no axis 2"),
        (Op.SLICE, SliceAttrs(0, 0, 0, 3), (3,), "the step at least 1"),
        (Op.FLIP, FlipAttrs((0, 0)), (4,), "no axes"),
        (Op.PAD, PadAttrs((-1,), (0,), 0.0), (3,), "a padding is negative"),
        (Op.PERMUTE, PermuteAttrs((1,)), (4,), "do not permute rank 1"),
        (Op.CAT, CatAttrs(1), (4,), "no axis 1"),
        (Op.WINDOW, WindowAttrs(0, 2, 2, 3), (2, 3), "element 4 of an axis of 4"),
        (Op.WINDOW, WindowAttrs(0, 2, 1, 2, 0), (2, 2), "dilation at least 1"),
        (Op.WINDOW, WindowAttrs(1, 1, 1, 1), (4, 1), "no axis 1"),
    ],
)
def test_views_out_of_range(op, attrs, shape, reason):
    x = tensor(Arena(), "x", 4)
    with pytest.raises(InvalidGraph, match=reason):
        check(graph(unchecked(op, x, attrs=attrs, type=TensorType(DType.F32, shape))))


def test_a_call_uses_each_operand():
    arena = Arena()
    x = tensor(arena, "x", 4)
    attrs = CallAttrs("aten.f.default", (Operand(1),), (), (x.type,), "")
    with pytest.raises(InvalidGraph, match=r"uses operands \[1\] of 1"):
        check(graph(arena.call((x,), attrs)))


def test_item_of_a_call_only():
    arena = Arena()
    x = tensor(arena, "x", 4)
    call = arena.call((x,), CallAttrs("aten.f.default", (Operand(0),), (), (x.type, None), ""))
    check(graph(arena.item(call, 0, x.type)))
    with pytest.raises(InvalidGraph, match="result 1 of the call is no tensor"):
        check(graph(arena.item(call, 1, x.type)))
    with pytest.raises(InvalidGraph, match="not a call"):
        check(graph(arena.item(x, 0, x.type)))


ESTIMATE = Estimate(0, 0, "memory")


def two_groups() -> Plan:
    small = small_graph()
    x, bias, half, total = (n for n in small.nodes() if n.op is not Op.CONST)
    first = Group("k1", GroupKind.POINTWISE, (half,), (x,), (half,), None, ESTIMATE, "")
    second = Group(
        "k2", GroupKind.POINTWISE, (total,), (half, bias), (total,), None, ESTIMATE, "", 0
    )
    return Plan(small, "cpu", (first, second))


def with_group(plan: Plan, position: int, **changes) -> Plan:
    groups = list(plan.groups)
    groups[position] = replace(groups[position], **changes)
    return replace(plan, groups=tuple(groups))


def test_a_sound_plan_passes():
    check(two_groups())


def test_plan_in_the_wrong_order():
    plan = two_groups()
    with pytest.raises(InvalidPlan, match="k2 reads .*mul, which no earlier group writes"):
        check(replace(plan, groups=plan.groups[::-1]))


def test_plan_without_an_output():
    plan = two_groups()
    with pytest.raises(InvalidPlan, match="no group writes the output"):
        check(replace(plan, groups=plan.groups[:1]))


def test_plan_that_writes_twice():
    plan = two_groups()
    with pytest.raises(InvalidPlan, match="k1 and k1 both write"):
        check(replace(plan, groups=(plan.groups[0], *plan.groups)))


def test_group_without_an_operand():
    with pytest.raises(InvalidPlan, match="k1 computes .*mul without its operand .*input"):
        check(with_group(two_groups(), 0, inputs=()))


def test_group_that_writes_what_it_does_not_compute():
    plan = two_groups()
    with pytest.raises(InvalidPlan, match="k1 writes .*add, which it does not compute"):
        check(with_group(plan, 0, outputs=plan.graph.outputs))


def test_reuse_of_what_is_still_needed():
    plan = two_groups()
    with pytest.raises(InvalidPlan, match="k1 takes the buffer of .*input"):
        check(with_group(plan, 0, reuse=0))
    with pytest.raises(InvalidPlan, match="k2 reuses input 7"):
        check(with_group(plan, 1, reuse=7))


def test_a_sound_kernel_passes():
    kernel = small_kernel()
    check(kernel)
    check(Pointwise("k1", kernel, small_kernel("strided"), (BATCH,)))


def broken(kind: str):
    kernel = small_kernel()
    element = kernel.element
    undefined = Let("t2", DType.F32, Op.EXP, (Name("t9"),), DType.F32, NO_ATTRS)
    wrong = Let("t2", DType.F16, Op.EXP, (Name("t0"),), DType.F32, NO_ATTRS)
    mixed = Let("t2", DType.F32, Op.ADD, (Name("t0"), Name("t1")), DType.F32, NO_ATTRS)
    unary = Let("t2", DType.F32, Op.ADD, (Name("t0"),), DType.F32, NO_ATTRS)
    lets = {"undefined": undefined, "wrong": wrong, "mixed": mixed, "unary": unary}
    if kind in lets:
        return replace(kernel, element=replace(element, body=(*element.body, lets[kind])))
    changes = {
        "twice": {"definitions": kernel.definitions * 2},
        "loop": {"loops": (Loop("i", symbol("s9")),)},
        "index": {"definitions": (*kernel.definitions, Index("n", symbol("j"), Access.LANE))},
        "buffer": {"definitions": (replace(kernel.definitions[0], buffer="out"),)},
        "store": {"stores": (replace(kernel.stores[0], buffer="x"),)},
        "result": {"stores": (replace(kernel.stores[0], result=1),)},
        "unwritten": {"stores": ()},
        "turned": {"turned": len(kernel.loops)},
    }
    return replace(kernel, **changes[kind])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("undefined", "t2 reads t9 before it is defined"),
        ("wrong", "t2 is f32, not f16"),
        ("mixed", "operands differ in dtype"),
        ("unary", "t2 is no call of add"),
        ("twice", "x0 is defined twice"),
        ("loop", "loop i uses s9"),
        ("index", "n uses j, which is neither a loop nor a size"),
        ("buffer", "x0 is loaded from out, which is no input"),
        ("store", "a store goes to x, which is no output"),
        ("result", "has no result 1"),
        ("unwritten", "nothing is stored to out"),
        ("turned", "threads cannot go through 1 loops"),
    ],
)
def test_broken_kernels(kind, reason):
    with pytest.raises(InvalidKernel, match=rf"k1 \(contiguous\): .*{reason}"):
        check(broken(kind))


def test_kernels_of_one_group_share_their_element():
    other = small_kernel("strided")
    other = replace(other, element=replace(other.element, name="other"))
    with pytest.raises(InvalidKernel, match="the kernels of k1 compute different elements"):
        check(Pointwise("k1", small_kernel(), other, (BATCH,)))


def capture(fact: InputFact, symbols: tuple[SymbolFact, ...]) -> Capture:
    arena = Arena()
    x = tensor(arena, "x", BATCH, 4)
    contract = Contract("self, x", (fact,), (), (), symbols)
    return Capture("m", (Variant("main", None, graph(arena.make(Op.EXP, x)), contract),))


SIZE = SymbolFact("s0", ("x", 0), 0, None, 2)


def test_captures():
    fact = InputFact("x", TensorType(DType.F32, (BATCH, 4)))
    check(capture(fact, (SIZE,)))
    with pytest.raises(InvalidCapture, match="size s0 of .*has no fact"):
        check(capture(fact, ()))
    with pytest.raises(InvalidCapture, match="x is f32"):
        check(capture(InputFact("x", TensorType(DType.F32, (BATCH, 5))), (SIZE,)))


def test_weights_have_facts():
    arena = Arena()
    w = weight(arena, "fc.bias", 4)
    variant = Variant("main", None, graph(w), Contract("self", (), (), (), ()))
    with pytest.raises(InvalidCapture, match=r"fc\.bias"):
        check(variant)


def test_other_values_have_no_check():
    with pytest.raises(TypeError, match="str has no check"):
        check("x")
