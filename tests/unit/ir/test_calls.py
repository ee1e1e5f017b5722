"""Which calls of the user's modules nodes ran in."""

from __future__ import annotations

from tests.unit.plan.plans import Make, plan_of

from opweld.ir.calls import place_of
from opweld.ir.graph import Arena, ModuleCall, Node, Origin
from opweld.ir.ops import Op
from opweld.ir.text import to_text

from .graphs import tensor


def call(path: str, type_name: str = "model:Block") -> ModuleCall:
    return ModuleCall(path, path, f"self.{path}", type_name, 0, None)


BLOCK, NORM = call("block"), call("block.norm", "model:Norm")
LINEAR = call("block.fc", "torch.nn.modules.linear:Linear")


def chain_of_three() -> tuple[Node, ...]:
    arena = Arena()
    x = tensor(arena, "x", 4)
    first = arena.make(Op.EXP, x)
    second = arena.make(Op.TANH, first)
    return first, second, arena.make(Op.NEG, second)


def placed(nodes: tuple[Node, ...], *chains: tuple[ModuleCall, ...]) -> dict[int, Origin]:
    return {
        node.serial: Origin("model.py:1", "y = f(x)", chain)
        for node, chain in zip(nodes, chains, strict=True)
    }


def test_what_ran_in_one_call_belongs_to_it():
    nodes = chain_of_three()
    origins = placed(nodes, (BLOCK, NORM), (BLOCK, NORM), (BLOCK, NORM))
    assert place_of(nodes, origins) == ((BLOCK, NORM), ())


def test_what_ran_in_part_elsewhere_belongs_to_the_call_around_both():
    nodes = chain_of_three()
    origins = placed(nodes, (BLOCK,), (BLOCK, NORM), (BLOCK,))
    assert place_of(nodes, origins) == ((BLOCK,), (NORM,))


def test_torchs_own_modules_are_no_boundary():
    nodes = chain_of_three()
    origins = placed(nodes, (BLOCK,), (BLOCK, LINEAR), (BLOCK,))
    assert place_of(nodes, origins) == ((BLOCK,), ())


def test_where_nothing_tells_there_is_no_place():
    assert place_of(chain_of_three(), {}) == (None, ())


def test_a_plan_tells_whose_boundary_a_kernel_crosses():
    m = Make()
    inner = m.exp(m.x("x", 64, 64))
    outer = m.tanh(inner)
    lines = ((inner.serial, ("model.py:1", "y", (BLOCK, NORM))),)
    lines += ((outer.serial, ("model.py:2", "z", (BLOCK,))),)
    text = to_text(plan_of(outer, origins=lines))
    assert "\n  crosses the boundary of block.norm\n" in text
