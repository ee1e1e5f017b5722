"""What the plan and the file say of rewrites."""

from __future__ import annotations

import pytest
from tests.unit.ir.graphs import BATCH, graph, tensor, weight

from opweld.errors import UserError
from opweld.ir.attrs import CallAttrs, Operand, ReduceAttrs
from opweld.ir.graph import Arena
from opweld.ir.ops import Op
from opweld.ir.rules.algebra import Algebra
from opweld.ir.rules.effects import ASSUMED, MOST_LEFT, file_lines, plan_lines
from opweld.ir.types import DType, TensorType
from opweld.options import Options
from opweld.simplify import simplify


def summed(algebra: Algebra):
    """The sum of a linear layer's features, on the user's line model.py:7."""
    arena = Arena()
    x, matrix = tensor(arena, "x", BATCH, 512), weight(arena, "self.fc.weight", 256, 512)
    result = TensorType(DType.F32, (BATCH, 256))
    attrs = CallAttrs("aten.linear.default", (Operand(0), Operand(1)), (), (result,), "")
    total = arena.make(Op.SUM, arena.call((x, matrix), attrs), attrs=ReduceAttrs((1,)))
    line = (("model.py:7", "return self.fc(x).sum(1)"),)
    before = graph(total, origins=((total.serial, *line),))
    return simplify(before, arena, algebra=algebra)


def test_the_plan_has_the_line_both_sides_and_what_is_saved():
    rewritten = summed(Algebra.EXACT).rewritten
    assert plan_lines(rewritten, Algebra.EXACT, (("s0", 1000),)) == [
        "algebra exact",
        "  sum-of-product [reorder]  # model.py:7",
        "    before: sum over the features of x @ fc.weight.T",
        "    after:  256 * (x @ mean(fc.weight.T))",
        "    saves:  261 Mflop of 262 Mflop, 2.05 Mbyte",
    ]


def left_over(count: int):
    """Sums of linear layers that others read, too."""
    arena = Arena()
    outputs = []
    for number in range(count):
        x = tensor(arena, f"x{number}", BATCH, 512)
        matrix = weight(arena, f"self.fc{number}.weight", 256, 512)
        result = TensorType(DType.F32, (BATCH, 256))
        attrs = CallAttrs("aten.linear.default", (Operand(0), Operand(1)), (), (result,), "")
        call = arena.call((x, matrix), attrs)
        outputs += [arena.make(Op.SUM, call, attrs=ReduceAttrs((1,))), call]
    places = tuple((n.serial, ("model.py:7", "total = y.sum(1)")) for n in outputs)
    return simplify(graph(*outputs, origins=places), arena)


def test_what_does_not_apply_is_told_with_the_reason():
    after = left_over(1)
    assert plan_lines(after.rewritten, Algebra.EXACT, (), after.left) == [
        "algebra exact",
        "  sum-of-product does not apply  # model.py:7",
        "    left:    sum over features of x0 @ fc0.weight",
        "    because: others read the product's features, too",
    ]


def test_of_many_places_the_first_are_told():
    after = left_over(9)
    lines = plan_lines(after.rewritten, Algebra.EXACT, (), after.left)
    assert len(lines) == 1 + 3 * MOST_LEFT + 1
    assert lines[-1] == f"  sum-of-product does not apply at {9 - MOST_LEFT} more places"


def test_new_nodes_stand_on_the_user_s_line():
    after = summed(Algebra.EXACT).graph
    places = {origin.place for _, origin in after.origins}
    assert places == {"model.py:7"} and len(after.origins) > 4


def test_the_assumption_comes_first():
    rewritten = summed(Algebra.FINITE).rewritten
    assert ASSUMED in plan_lines(rewritten, Algebra.FINITE, ())[0]
    assert file_lines(rewritten, Algebra.FINITE)[0].lower().startswith("inputs and weights")
    assert len(file_lines(rewritten, Algebra.EXACT)) == 1


@pytest.mark.parametrize("algebra", list(Algebra), ids=lambda algebra: algebra.value)
def test_without_rewrites_there_are_no_lines(algebra):
    assert plan_lines((), algebra, ()) == file_lines((), algebra) == []


def test_other_algebras_are_refused():
    assert [Options(algebra=each.value).algebra for each in Algebra] == ["exact", "finite", "off"]
    with pytest.raises(UserError, match="there is no algebra 'loose'"):
        Options(algebra="loose")
