from __future__ import annotations

from opweld.plan.places import HERE, places_of

from .plans import Make


def test_what_is_read_directly_is_evaluated_here():
    m = Make()
    x = m.x("x", 4, 8)
    y = m.exp(x)
    z = m.add(y, x)
    assert places_of([y, z], [z]) == {x.serial: {HERE}, y.serial: {HERE}, z.serial: {HERE}}


def test_a_view_leads_to_another_place():
    m = Make()
    x = m.x("x", 8, 8)
    y = m.exp(x)
    z = m.add(m.permute(y, 1, 0), x)
    places = places_of([y, z], [z])
    assert HERE not in places[y.serial] and len(places[y.serial]) == 1
    assert len(places[x.serial]) == 2 and HERE in places[x.serial]


def test_a_result_is_evaluated_here_even_if_it_is_also_read_elsewhere():
    m = Make()
    x = m.x("x", 8)
    y = m.exp(x)
    z = m.add(m.flip(y, 0), 1.0)
    flip = z.inputs[0]
    assert len(places_of([y, flip, z], [z])[y.serial]) == 1
    assert len(places_of([y, flip, z], [y, z])[y.serial]) == 2


def test_equal_ways_are_one_place():
    m = Make()
    x, row = m.x("x", 4, 8), m.x("row", 8)
    y = m.exp(row)
    outputs = [m.add(x, y), m.mul(x, y)]
    assert len(places_of([y, *outputs], outputs)[y.serial]) == 1


def test_the_pieces_of_a_cat_are_different_places():
    m = Make()
    x = m.exp(m.x("x", 8))
    both = m.cat(0, x, x)
    assert len(places_of([x, both], [both])[x.serial]) == 2


def test_the_limit_counts_every_place():
    m = Make()
    value = m.x("x", 64)
    nodes = []
    for _ in range(5):
        tanh = m.tanh(value)
        flip = m.flip(tanh, 0)
        value = m.add(tanh, flip)
        nodes += [tanh, flip, value]
    assert places_of(nodes, [value], 1000) is not None
    assert places_of(nodes, [value], 40) is None


def test_reshapes_that_mix_axes_are_limited():
    m = Make()
    value = m.x("x", 4, 6)
    nodes = []
    for count in range(6):
        value = m.neg(m.permute(m.reshape(value, 6, 4), 1, 0))
        nodes.append(value)
        assert (places_of(nodes, [value], 1000) is None) is (count >= 4)
    assert places_of(nodes, [value]) is not None


def test_reshapes_that_add_axes_of_one_element_are_free():
    m = Make()
    value = m.x("x", 4, 6)
    nodes = []
    for _ in range(20):
        value = m.neg(m.reshape(m.permute(m.reshape(value, 4, 1, 6), 1, 0, 2), 4, 6))
        nodes.append(value)
    assert places_of(nodes, [value], 1000) is not None
