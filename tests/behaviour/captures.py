"""Captures written by hand, so that the emitted file is tested apart from torch.export."""

from __future__ import annotations

from opweld.ir.contract import (
    Capture,
    Contract,
    InputFact,
    ModuleFact,
    SymbolFact,
    Variant,
    WeightFact,
)
from opweld.ir.expr import symbol
from opweld.ir.graph import Arena, Graph, Leaf, Node
from opweld.ir.ops import CallAttrs, Op, Operand
from opweld.ir.types import DType, TensorType

F32, BF16 = DType.F32, DType.BF16
S0 = symbol("s0")

GELU = '''"""GELU in its tanh form, written out."""

import math

import torch
from torch import nn

batch_size = 16
FEATURES = 96


class Model(nn.Module):
    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


def get_inputs():
    return [torch.randn(batch_size, FEATURES)]


def get_init_inputs():
    return []
'''

LINEAR = '''"""A Linear layer, then swish, a scaling, and a tanh between two clamps."""

import torch
from torch import nn

batch_size = 8
in_features = 24
out_features = 40


class Model(nn.Module):
    def __init__(self, in_features, out_features, scale=0.5):
        super(Model, self).__init__()
        self.project = nn.Linear(in_features, out_features)
        self.scale = scale

    def forward(self, x):
        y = self.project(x)
        y = y * torch.sigmoid(y) * self.scale
        y = torch.clamp(y, min=-1.0, max=1.0)
        y = torch.tanh(y)
        return torch.clamp(y, min=-1.0, max=1.0)


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
'''

BRANCHES = '''"""Dropout, a Linear layer and a tail with a second input and a learned gain; a dict of two."""

import torch
from torch import nn

SHAPE = (6, 20)


class Gate(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


class Model(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(features, width)
        self.gain = nn.Parameter(torch.randn(width))
        self.gate = Gate()

    def forward(self, x, skip):
        h = self.fc(self.drop(x))
        gate = self.gate(h)
        return {"sum": torch.tanh(h) * self.gain + skip, "gate": gate}


def get_inputs():
    return [torch.randn(SHAPE), torch.randn(SHAPE[0], 32)]


def get_init_inputs():
    return [SHAPE[1], 32]
'''


def gelu() -> Capture:
    arena = Arena()
    x = arena.source(Op.INPUT, "x", "x", TensorType(F32, (S0, 96)))
    first = ("gelu.py:15", "inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))")
    last = ("gelu.py:16", "return 0.5 * x * (1.0 + torch.tanh(inner))")

    def const(value: float) -> Node:
        return arena.const(value, F32)

    cube = arena.make(Op.POW, x, const(3.0))
    scaled = arena.make(Op.MUL, const(0.044715), cube)
    added = arena.make(Op.ADD, x, scaled)
    inner = arena.make(Op.MUL, const(0.7978845608028654), added)
    half = arena.make(Op.MUL, const(0.5), x)
    tanh = arena.make(Op.TANH, inner)
    plus = arena.make(Op.ADD, const(1.0), tanh)
    out = arena.make(Op.MUL, half, plus)
    origins = [(n.serial, first) for n in (cube, scaled, added, inner)]
    origins += [(n.serial, last) for n in (half, tanh, plus, out)]
    graph = Graph("gelu", (x,), (), (out,), Leaf(0), tuple(origins))
    contract = Contract(
        signature="self, x",
        inputs=(InputFact("x", x.type),),
        weights=(),
        modules=(ModuleFact("", "opweld_model:Model", (), None),),
        symbols=(SymbolFact("s0", ("x", 0), 0, None, 16),),
    )
    variant = Variant("float32", None, graph, contract)
    return Capture("gelu", (variant,), ("bfloat16", "float16"))


def _linear_variant(name: str, autocast: str | None, dtype: DType) -> Variant:
    arena = Arena()
    x = arena.source(Op.INPUT, "x", "x", TensorType(F32, (S0, 24)))
    weight_type, bias_type = TensorType(F32, (40, 24)), TensorType(F32, (40,))
    weight = arena.source(Op.WEIGHT, "project_weight", "self.project.weight", weight_type)
    bias = arena.source(Op.WEIGHT, "project_bias", "self.project.bias", bias_type)
    arguments = (Operand(0), Operand(1), Operand(2))
    results = (TensorType(dtype, (S0, 40)),)
    attrs = CallAttrs("aten.linear.default", arguments, (), results, "a product")
    y = arena.call((x, weight, bias), attrs)

    def const(value: float) -> Node:
        return arena.const(value, dtype)

    swish = arena.make(Op.MUL, y, arena.make(Op.SIGMOID, y))
    scaled = arena.make(Op.MUL, swish, const(0.5))
    low = arena.make(Op.CLAMP_MIN, scaled, const(-1.0))
    clamped = arena.make(Op.CLAMP_MAX, low, const(1.0))
    out = arena.make(Op.TANH, clamped)
    origins = (
        (y.serial, ("linear.py:17", "y = self.project(x)")),
        (swish.serial, ("linear.py:18", "y = y * torch.sigmoid(y) * self.scale")),
        (swish.inputs[1].serial, ("linear.py:18", "y = y * torch.sigmoid(y) * self.scale")),
        (scaled.serial, ("linear.py:18", "y = y * torch.sigmoid(y) * self.scale")),
        (low.serial, ("linear.py:19", "y = torch.clamp(y, min=-1.0, max=1.0)")),
        (clamped.serial, ("linear.py:19", "y = torch.clamp(y, min=-1.0, max=1.0)")),
        (out.serial, ("linear.py:20", "y = torch.tanh(y)")),
    )
    graph = Graph("linear", (x,), (weight, bias), (out,), Leaf(0), origins)
    contract = Contract(
        signature="self, x",
        inputs=(InputFact("x", x.type),),
        weights=(
            WeightFact("project.weight", weight_type),
            WeightFact("project.bias", bias_type),
        ),
        modules=(
            ModuleFact("", "opweld_model:Model", (("scale", 0.5),), None),
            ModuleFact("project", "torch.nn.modules.linear:Linear", (), None),
        ),
        symbols=(SymbolFact("s0", ("x", 0), 0, None, 8),),
    )
    return Variant(name, autocast, graph, contract)


def linear() -> Capture:
    plain = _linear_variant("float32", None, F32)
    return Capture("linear", (plain, _linear_variant("autocast_bfloat16", "bfloat16", BF16)), ())


def branches() -> Capture:
    arena = Arena()
    x = arena.source(Op.INPUT, "x", "x", TensorType(F32, (S0, 20)))
    skip = arena.source(Op.INPUT, "skip", "skip", TensorType(F32, (S0, 32)))
    types = [TensorType(F32, shape) for shape in ((32, 20), (32,), (32,))]
    weight = arena.source(Op.WEIGHT, "fc_weight", "self.fc.weight", types[0])
    bias = arena.source(Op.WEIGHT, "fc_bias", "self.fc.bias", types[1])
    gain = arena.source(Op.WEIGHT, "gain", "self.gain", types[2])
    arguments = (Operand(0), Operand(1), Operand(2))
    results = (TensorType(F32, (S0, 32)),)
    attrs = CallAttrs("aten.linear.default", arguments, (), results, "a product")
    h = arena.call((x, weight, bias), attrs)
    gate = arena.make(Op.SIGMOID, h)
    product = arena.make(Op.MUL, arena.make(Op.TANH, h), gain)
    total = arena.make(Op.ADD, product, skip)
    line = ("branches.py:27", 'return {"sum": torch.tanh(h) * self.gain + skip, "gate": gate}')
    origins = (
        (h.serial, ("branches.py:25", "h = self.fc(self.drop(x))")),
        (gate.serial, ("branches.py:11", "return torch.sigmoid(x)")),
        *((n.serial, line) for n in (product.inputs[0], product, total)),
    )
    structure = ("dict", (("sum", Leaf(0)), ("gate", Leaf(1))))
    graph = Graph("branches", (x, skip), (weight, bias, gain), (total, gate), structure, origins)
    contract = Contract(
        signature="self, x, skip",
        inputs=(InputFact("x", x.type), InputFact("skip", skip.type)),
        weights=(
            WeightFact("fc.weight", types[0]),
            WeightFact("fc.bias", types[1]),
            WeightFact("gain", types[2]),
        ),
        modules=(
            ModuleFact("", "opweld_model:Model", (), None),
            ModuleFact("drop", "torch.nn.modules.dropout:Dropout", (), False),
            ModuleFact("fc", "torch.nn.modules.linear:Linear", (), None),
            ModuleFact("gate", "opweld_model:Gate", (), None),
        ),
        symbols=(SymbolFact("s0", ("x", 0), 0, None, 6),),
    )
    variant = Variant("float32", None, graph, contract)
    return Capture("branches", (variant,), ())
