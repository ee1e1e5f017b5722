from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opweld.ir.attrs import NO_ATTRS, CallAttrs, CastAttrs, Operand, ShapeAttrs
from opweld.ir.contract import Contract, InputFact, ModuleFact, SymbolFact, WeightFact
from opweld.ir.expr import symbol
from opweld.ir.graph import Arena, Leaf
from opweld.ir.kernels.kernel import (
    Access,
    Between,
    Buffer,
    Const,
    Element,
    Extent,
    Kernel,
    Let,
    Load,
    Loop,
    Name,
    Pointwise,
    Store,
)
from opweld.ir.ops import Op
from opweld.ir.plan import Estimate, Group, GroupKind, Plan, PointwiseSchedule
from opweld.ir.text import to_text
from opweld.ir.types import DType, TensorType

from .graphs import BATCH, graph, tensor, weight


def small_graph():
    arena = Arena()
    x, bias = tensor(arena, "x", BATCH, 8192), weight(arena, "fc.bias", 8192)
    arena.make(Op.EXP, x)  # dead: takes a serial, and no number in the text
    half = arena.make(Op.MUL, x, arena.const(0.5, DType.F32))
    total = arena.make(Op.ADD, half, bias)
    return graph(total, origins=((half.serial, ("gelu.py:14", "x * 0.5")),), name="gelu")


SMALL_TEXT = """\
graph gelu
%0 f32[s0, 8192] = input x
%1 f32[8192] = weight fc.bias
%2 f32[s0, 8192] = mul %0 0.5  # gelu.py:14
%3 f32[s0, 8192] = add %2 %1
return %3
"""


def test_graph_text_numbers_by_topological_order():
    assert to_text(small_graph()) == SMALL_TEXT


def test_graph_text_of_calls_constants_and_structure():
    arena = Arena()
    x = tensor(arena, "x", BATCH, 8)
    ones = arena.make(Op.EXPAND, arena.const(1.0, DType.F32), attrs=ShapeAttrs((BATCH, 8)))
    as_int = arena.make(Op.CAST, arena.const(2.0, DType.F64), attrs=CastAttrs(DType.I32))
    attrs = CallAttrs(
        "aten.foo.default",
        (Operand(0), (Operand(1), 3, BATCH)),
        (("mode", "up"), ("x", None)),
        (x.type, None),
        "no row",
    )
    call = arena.call((x, ones), attrs)
    item = arena.item(call, 0, x.type)
    structure = ("dict", (("a", Leaf(0)), ("b", ("tuple", (Leaf(1), ("const", None))))))
    assert to_text(graph(item, as_int, structure=structure)) == (
        "graph small\n"
        "%0 f32[s0, 8] = input x\n"
        "%1 f32[s0, 8] = expand 1.0:f32 shape=[s0, 8]\n"
        "%2 (f32[s0, 8], None) = call aten.foo.default(%0, [%1, 3, s0], mode='up', x=None)"
        "  # no row\n"
        "%3 f32[s0, 8] = item %2 index=0\n"
        "%4 i32[] = cast 2.0:f64 i32\n"
        "return {'a': %3, 'b': (%4, None)}\n"
    )


def test_plan_text():
    small = small_graph()
    x, bias, half, total = (n for n in small.nodes() if n.op is not Op.CONST)
    group = Group(
        "k1_mul_add",
        GroupKind.POINTWISE,
        (half, total),
        (x, bias),
        (total,),
        PointwiseSchedule(4, 2, 256),
        Estimate(BATCH * 65536, BATCH * 16384, "memory"),
        "one pass over x",
    )
    assert to_text(Plan(small, "sm_90a", (group,))) == (
        "plan gelu for sm_90a\n"
        "k1_mul_add  pointwise  vector width 4, 2 in flight, 256 threads\n"
        "  %2 f32[s0, 8192] = mul %0 0.5  # gelu.py:14\n"
        "  %3 f32[s0, 8192] = add %2 %1\n"
        "  reads %0 %1, writes %3\n"
        "  s0 * 65536 bytes, s0 * 16384 flops, limit memory\n"
        "  reason: one pass over x\n"
        "return %3\n"
    )


def small_kernel(variant: str = "contiguous") -> Kernel:
    i, n = symbol("i"), symbol("s0")
    body = (
        Let("t0", DType.F32, Op.MUL, (Name("x0"), Const(0.5, DType.F32)), DType.F32, NO_ATTRS),
        Let("t1", DType.F16, Op.CAST, (Name("t0"),), DType.F32, CastAttrs(DType.F16), "a.py:3"),
    )
    element = Element("half", (("x0", DType.F32),), body, ((DType.F16, Name("t1")),))
    return Kernel(
        "k1",
        variant,
        "x * 0.5",
        (Buffer("x", DType.F32, False, 0, (8,), "x"), Buffer("out", DType.F16, True, 0, (8,), "")),
        (Extent("s0"), Extent("x_s0", "x", 0)),
        (Loop("i", n),),
        (Load("x0", "x", DType.F32, i * symbol("x_s0"), Access.LANE, (Between(i, 1, n),)),),
        element,
        (Store("out", DType.F16, i, 0),),
        1,
        1,
        256,
    )


KERNEL_TEXT = """\
kernel k1 contiguous  vector width 1, 1 in flight, 256 threads  # x * 0.5
  input x f32 rank 1 = inputs[0]  # x
  output out f16 rank 1 = outputs[0]
  size s0
  stride x_s0 of x axis 0
  for i in 0..s0:
    x0 f32 = load x[i * x_s0] if 1 <= i < s0 else 0  lane
    element half(x0 f32):
      t0 f32 = mul x0 0.5
      t1 f16 = cast t0 f16 from f32  # a.py:3
      result 0 f16 = t1
    store out[i] f16 = result 0
"""


def test_kernel_text():
    assert to_text(small_kernel()) == KERNEL_TEXT
    both = to_text(Pointwise("k1", small_kernel(), small_kernel("strided"), (BATCH,)))
    strided = KERNEL_TEXT.replace("k1 contiguous", "k1 strided")
    assert both == "fused k1 [s0]\n" + KERNEL_TEXT + strided


def test_contract_text():
    contract = Contract(
        "self, x, scale=2",
        (InputFact("x", TensorType(DType.F32, (BATCH, 4))), InputFact("scale", None, 2)),
        (WeightFact("fc.bias", TensorType(DType.F32, (4,))),),
        (ModuleFact("", "m:Model", (("eps", 1e-5),), None), ModuleFact("fc", "t:L", (), True)),
        (SymbolFact("s0", ("x", 0), 0, None, 16),),
    )
    assert to_text(contract) == (
        "contract forward(self, x, scale=2)\n"
        "  input x f32[s0, 4]\n"
        "  input scale == 2\n"
        "  weight fc.bias f32[4]\n"
        "  module (itself) m:Model eps=1e-05\n"
        "  module fc t:L training=True\n"
        "  size s0 = x.shape[0] from 0 to any, seen 16\n"
    )


def test_other_values_have_no_text():
    with pytest.raises(TypeError, match="int has no canonical text"):
        to_text(3)


@pytest.mark.parametrize("seed", ["0", "1", "77"])
def test_text_is_the_same_under_any_hash_seed(seed):
    root = Path(__file__).parents[3]
    program = (
        "from tests.unit.ir.test_text import *\n"
        "print(to_text(small_graph()) + to_text(small_kernel()), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}/src:{root}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == SMALL_TEXT + KERNEL_TEXT, done.stderr
