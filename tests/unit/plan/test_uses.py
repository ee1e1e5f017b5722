from __future__ import annotations

from tests.unit.ir.graphs import graph

from opweld.plan.uses import behind_views, computes, is_free_view, uses_of

from .plans import BATCH, Make


def test_what_computes_and_what_is_free():
    m = Make()
    x = m.x("x", BATCH, 8)
    free = [
        m.permute(x, 1, 0),
        m.reshape(x, BATCH * 8),
        m.slice(x, 1, 0, 4),
        m.expand(x, 2, BATCH, 8),
    ]
    moving = [m.flip(x, 1), m.cat(1, x, x), m.pad(x, (0, 0), (1, 0))]
    assert all(is_free_view(node) and not computes(node) for node in free)
    assert all(computes(node) and not is_free_view(node) for node in moving)
    assert computes(m.exp(x)) and not computes(m.call(x)) and not computes(x)
    assert behind_views(m.slice(m.permute(x, 1, 0), 0, 0, 2)) is x
    assert behind_views(moving[0]) is moving[0]


def test_readers_are_seen_through_views():
    m = Make()
    x = m.exp(m.x("x", 4, 8))
    turned = m.permute(x, 1, 0)
    a, b = m.neg(m.reshape(turned, 32)), m.add(turned, m.permute(x, 1, 0))
    uses = uses_of(graph(a, b))
    assert set(uses.readers[x.serial]) == {a, b}
    assert not uses.leaves_memory(x)


def test_what_is_returned_through_a_view_is_kept():
    m = Make()
    x = m.exp(m.x("x", 4, 8))
    view = m.reshape(m.permute(x, 1, 0), 32)
    uses = uses_of(graph(view))
    assert uses.leaves_memory(x) and uses.results([x]) == (x,)
    assert view.serial in uses.shown and view.inputs[0].serial in uses.shown


def test_a_view_inside_a_kernel_is_not_shown():
    m = Make()
    x = m.exp(m.x("x", 4, 8))
    view = m.permute(x, 1, 0)
    uses = uses_of(graph(m.neg(view)))
    assert view.serial not in uses.shown
    assert m.permute(x, 1, 0) is view
    assert uses_of(graph(m.call(view))).shown >= {view.serial}


def test_results_are_read_outside():
    m = Make()
    x = m.x("x", 4, 8)
    a = m.exp(x)
    b = m.neg(a)
    c = m.abs(m.permute(a, 1, 0))
    uses = uses_of(graph(b, c))
    assert uses.results([a, b]) == (a, b)
    assert uses.results([a, c]) == (a, c)
    assert uses.results([a, b, c]) == (b, c)
