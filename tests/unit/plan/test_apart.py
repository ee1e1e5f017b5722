"""Which rows are folded by one kernel and mapped by another, though there are enough of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.plan_meaning import run_plan
from tests.unit.plan.plans import BATCH, Make, graph, plan_of

from opweld.ir.attrs import CastAttrs
from opweld.ir.graph import Node
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.ops import Op
from opweld.ir.plan import GroupKind, ReductionSchedule
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.plan.rows import KEPT_EACH
from opweld.target import CPU, SM_80, SM_90A, Target

ROWS, KEPT = 300, SM_90A.cluster_blocks * KEPT_EACH
LONG = KEPT + 4


def kernels_of(*outputs: Node, target: Target = SM_90A) -> list[list[str]]:
    groups = plan_of(*outputs, target=target).groups
    return [[n.op.value for n in group.nodes if n.op is not Op.CONST] for group in groups]


def test_a_norm_of_long_rows_is_two_kernels() -> None:
    m = Make()
    folds, rest = plan_of(m.mul(m.standardised(m.x("x", ROWS, LONG), 1), 2.0)).groups
    assert isinstance(folds.schedule, ReductionSchedule) and folds.schedule.cut
    assert folds.rows is not None and folds.rows.num_walks == 1
    assert rest.kind is GroupKind.POINTWISE


def test_what_is_computed_before_is_computed_by_both() -> None:
    m = Make()
    operand = m.relu(m.add(m.x("x", ROWS, LONG), m.x("bias", LONG)))
    folds, rest = kernels_of(m.standardised(operand, 1))
    assert folds[:2] == rest[:2] == ["add", "relu"]


def test_unless_it_is_stored() -> None:
    m = Make()
    operand = m.relu(m.x("x", ROWS, LONG))
    assert len(kernels_of(operand, m.standardised(operand, 1))) == 1


def test_rows_that_are_kept_are_walked_by_one() -> None:
    m = Make()
    for shape, axis in (((ROWS, KEPT), 1), ((BATCH, BATCH), 1), ((LONG, 128 * ROWS), 0)):
        x = m.x("x", *shape)
        assert len(kernels_of(m.sub(x, m.reduced("sum", x, axis)))) == 1, shape
    x, y = m.x("x", ROWS, KEPT // 2 + 4), m.x("y", ROWS, KEPT // 2 + 4)
    assert len(kernels_of(m.standardised(x, 1))) == 1
    assert len(kernels_of(m.standardised(m.add(x, y), 1))) == 2, "twice as many bytes"


@pytest.mark.parametrize("target", [SM_80, CPU])
def test_where_clusters_keep_none_nothing_changes(target: Target) -> None:
    m = Make()
    assert len(kernels_of(m.standardised(m.x("x", ROWS, LONG), 1), target=target)) == 1


def test_folds_that_take_more_instructions_than_bytes_stay() -> None:
    m = Make()
    x, half = m.x("x", ROWS, 2 * LONG), m.x("half", ROWS, 2 * LONG, dtype=DType.BF16)
    wide = m.arena.make(Op.CAST, half, attrs=CastAttrs(DType.F32))
    for result in (m.softmax(x, 1), m.standardised(wide, 1), m.standardised(m.tanh(x), 1)):
        assert len(kernels_of(result)) == 1


def test_a_fold_and_a_map_in_one_walk_stay_together() -> None:
    m = Make()
    doubled = m.mul(m.x("x", ROWS, LONG), 2.0)
    (group,) = plan_of(m.relu(doubled), m.reduced("sum", doubled, 1)).groups
    assert group.rows is not None and group.rows.num_walks == 1


def test_it_means_the_same() -> None:
    m = Make()
    length = 2 * KEPT_EACH + 4
    operand = m.relu(m.x("x", 3, length))
    before = graph(m.mul(m.standardised(operand, 1), m.x("weight", length)))
    plan = make_plan(before, replace(SM_90A, cluster_blocks=2, rows_in_flight=2))
    assert len(plan.groups) == 2
    random = np.random.default_rng(0)
    x, weight = random.standard_normal((3, length)) + 2, random.standard_normal(length)
    x[1, 5], x[2, 7] = np.inf, np.nan
    arrays = {"x": x.astype("f4"), "weight": weight.astype("f4")}
    feeds = {node.attrs.access: arrays[node.attrs.name] for node in before.inputs}
    with np.errstate(all="ignore"):
        (wanted,) = interpret_outputs(before, feeds, {}, precision="float64")
        (got,) = run_plan(plan, lower(plan), feeds, {})
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
