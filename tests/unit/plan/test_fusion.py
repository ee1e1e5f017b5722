from __future__ import annotations

from tests.unit.ir.graphs import graph

from opweld.ir.graph import Node
from opweld.plan import fusion
from opweld.plan.fusion import MAX_CLUSTER_NODES, fuse
from opweld.plan.uses import uses_of

from .plans import BATCH, Make, clusters_of


def test_a_chain_is_one_cluster():
    m = Make()
    x = m.x("x", BATCH, 8)
    assert clusters_of(m.tanh(m.exp(m.neg(x)))) == [["neg", "exp", "tanh"]]


def test_intermediates_that_are_results_stay_in_the_cluster():
    m = Make()
    x = m.x("x", BATCH, 8)
    first = m.exp(x)
    assert clusters_of(first, m.tanh(first)) == [["exp", "tanh"]]


def test_a_call_cuts_a_chain():
    m = Make()
    x = m.x("x", BATCH, 8)
    assert clusters_of(m.tanh(m.call(m.exp(x)))) == [["exp"], ["tanh"]]


def test_what_passes_a_call_by_does_not_close_a_cycle():
    """exp feeds both the call and tanh, which also reads the call: one kernel would wait for
    itself.
    """
    m = Make()
    x = m.x("x", BATCH, 8)
    y = m.exp(x)
    assert clusters_of(m.add(m.call(y), y)) == [["exp"], ["add"]]


def test_a_long_diamond_through_a_call():
    m = Make()
    x = m.x("x", BATCH, 8)
    y = m.exp(x)
    side = m.neg(y)
    joined = m.add(m.tanh(m.call(m.call(y))), side)
    # neg may run with exp or with add; exp and add can never be one.
    clusters = clusters_of(joined)
    assert clusters == [["exp", "neg"], ["tanh", "add"]]


def test_clusters_that_need_each_other_are_not_made():
    """Each pair reads one operand; from each a call leads to the other."""
    m = Make()
    x, y = m.x("x", BATCH, 8), m.x("y", BATCH, 4)
    exp, tanh = m.exp(x), m.tanh(y)
    neg = m.add(x, m.call(m.x("z", BATCH, 8), m.call(tanh)))
    abs_ = m.add(y, m.call(m.x("w", BATCH, 4), m.call(exp)))
    clusters = clusters_of(exp, tanh, neg, abs_)
    # Either pair may share a kernel; the other one then cannot.
    assert sorted(map(len, clusters)) == [1, 1, 2]


def test_siblings_of_one_operand_share_its_load():
    m = Make()
    x = m.x("x", BATCH, 8)
    assert clusters_of(m.exp(x), m.tanh(x)) == [["exp", "tanh"]]


def test_siblings_of_another_shape_stay_apart():
    m = Make()
    x, row = m.x("x", BATCH, 8), m.x("row", 8)
    assert clusters_of(m.add(x, row), m.exp(row)) == [["add"], ["exp"]]


def test_a_sibling_that_feeds_another_space_stays_apart():
    """neg has the shape of exp, but is computed in the space of add."""
    m = Make()
    x, row = m.x("x", BATCH, 8), m.x("row", 8)
    assert clusters_of(m.exp(row), m.add(x, m.neg(row))) == [["exp"], ["neg", "add"]]


def test_siblings_that_share_only_a_constant_stay_apart():
    m = Make()
    x, y = m.x("x"), m.x("y")
    assert clusters_of(m.add(x, 1.0), m.mul(y, 1.0)) == [["add"], ["mul"]]


def test_a_sibling_behind_a_call_stays_apart():
    m = Make()
    x = m.x("x", BATCH, 8)
    later = m.add(m.call(m.exp(x)), x)
    assert clusters_of(later) == [["exp"], ["add"]]


def test_a_prologue_of_another_shape_is_computed_in_place():
    m = Make()
    x, row = m.x("x", BATCH, 8), m.x("row", 8)
    assert clusters_of(m.mul(x, m.exp(row))) == [["exp", "mul"]]


def test_a_prologue_that_is_also_a_result_is_a_kernel_of_its_own():
    m = Make()
    x, row = m.x("x", BATCH, 8), m.x("row", 8)
    scale = m.exp(row)
    assert clusters_of(m.mul(x, scale), scale) == [["exp"], ["mul"]]


def test_a_prologue_that_two_kernels_read_is_a_kernel_of_its_own():
    m = Make()
    x, y, row = m.x("x", BATCH, 8), m.x("y", 4, 8), m.x("row", 8)
    scale = m.exp(row)
    assert clusters_of(m.mul(x, scale), m.add(y, scale)) == [["exp"], ["mul"], ["add"]]


def test_through_views():
    m = Make()
    x, y = m.x("x", BATCH, 8), m.x("y", 8, BATCH)
    turned = m.permute(m.exp(x), 1, 0)
    assert clusters_of(m.add(turned, y)) == [["exp", "add"]]
    flat = m.reshape(m.exp(x), BATCH * 8)
    assert clusters_of(m.neg(flat)) == [["exp", "neg"]]
    assert clusters_of(m.neg(m.slice(m.exp(x), 1, 2, 3))) == [["exp", "neg"]]


def test_a_view_that_is_returned_needs_its_base_in_memory():
    m = Make()
    x = m.x("x", BATCH, 8)
    turned = m.permute(m.exp(x), 1, 0)
    assert clusters_of(m.neg(turned), turned) == [["exp"], ["neg"]]


def test_a_view_that_a_call_reads_needs_its_base_in_memory():
    m = Make()
    x = m.x("x", BATCH, 8)
    turned = m.permute(m.exp(x), 1, 0)
    assert clusters_of(m.neg(turned), m.call(turned)) == [["exp"], ["neg"]]


def test_moved_data_is_computed_where_it_is_read():
    m = Make()
    x, y = m.x("x", BATCH, 8), m.x("y", BATCH, 4)
    joined = m.cat(1, m.exp(x), y)
    assert clusters_of(m.relu(joined)) == [["exp", "cat", "relu"]]
    padded = m.pad(m.exp(x), (0, 1), (0, 1))
    assert clusters_of(m.relu(padded)) == [["exp", "pad", "relu"]]
    flipped = m.flip(m.exp(x), 1)
    assert clusters_of(m.relu(flipped)) == [["exp", "flip", "relu"]]


def test_half_of_a_gate_reads_the_other_half():
    m = Make()
    x = m.exp(m.x("x", BATCH, 8))
    gate = m.mul(m.slice(x, 1, 0, 4), m.sigmoid(m.slice(x, 1, 4, 4)))
    assert clusters_of(gate) == [["exp", "sigmoid", "mul"]]


def test_a_detour_through_another_shape_is_merged_first():
    """Once neg is computed in place, no path leads from exp to add any more."""
    m = Make()
    x = m.exp(m.x("x", BATCH, 8))
    first = m.expand(m.neg(m.slice(x, 1, 0, 1)), BATCH, 8)
    assert clusters_of(m.add(x, first), x) == [["exp", "neg", "add"]]


def test_a_flipped_value_is_not_read_in_place_by_what_also_returns_it():
    m = Make()
    x = m.exp(m.x("x", 8))
    assert clusters_of(m.add(m.flip(x, 0), 1.0), x) == [["exp"], ["flip", "add"]]


def long_chain(m: Make, length: int) -> Node:
    value = m.x("x", BATCH, 8)
    for index in range(length):
        value = m.tanh(value) if index % 2 else m.neg(value)
    return value


def test_clusters_have_a_largest_size():
    sizes = [len(cluster) for cluster in clusters_of(long_chain(Make(), 3 * MAX_CLUSTER_NODES))]
    assert max(sizes) <= MAX_CLUSTER_NODES
    assert sum(sizes) == 3 * MAX_CLUSTER_NODES
    assert len(sizes) == 3


def test_work_that_would_double_at_every_step_is_cut():
    """Each sum of two overlapping slices reads the one before at two more places."""
    m = Make()
    value = m.x("x", 200)
    for length in range(199, 169, -1):
        value = m.add(m.slice(value, 0, 0, length), m.slice(m.tanh(value), 0, 1, length))
    sizes = [len(cluster) for cluster in clusters_of(value)]
    assert sum(sizes) == 60
    assert len(sizes) > 5


def test_rolled_sums_are_cut():
    m = Make()
    value = m.x("x", 64)
    for _ in range(40):
        rolled = m.cat(0, m.slice(value, 0, 1, 63), m.slice(value, 0, 0, 1))
        value = m.add(value, rolled)
    assert len(clusters_of(value)) > 5


def test_every_computing_node_is_in_one_cluster():
    m = Make()
    x = m.x("x", BATCH, 8)
    y = m.exp(x)
    outputs = (m.tanh(m.call(y)), m.cat(1, y, x), m.neg(m.flip(x, 0)))
    found = [node for cluster in fuse(uses_of(graph(*outputs))) for node in cluster.nodes]
    assert sorted(n.op.value for n in found) == ["cat", "exp", "flip", "neg", "tanh"]
    assert len(set(found)) == len(found)


def questions(length: int, monkeypatch) -> int:
    """How many pairs of clusters are compared; every tenth operation of the chain is a call."""
    asked = 0
    whether = fusion.Reach.returns

    def counted(self, left: int, right: int) -> bool:
        nonlocal asked
        asked += 1
        return whether(self, left, right)

    monkeypatch.setattr(fusion.Reach, "returns", counted)
    m = Make()
    value = m.x("x", BATCH, 8)
    for index in range(length):
        value = m.tanh(value) if index % 10 else m.neg(m.call(value))
    fuse(uses_of(graph(value)))
    monkeypatch.undo()
    return asked


def test_the_work_grows_with_the_length(monkeypatch):
    assert questions(400, monkeypatch) <= 2 * questions(200, monkeypatch) + 10
