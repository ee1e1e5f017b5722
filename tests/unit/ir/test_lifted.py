"""A group over named sizes: which sizes are one name, which are made of others, which stay."""

from __future__ import annotations

from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.graph import Node
from opweld.ir.kernels.lifted import lifted
from opweld.ir.plan import Group, Lifting
from opweld.plan import make_plan
from opweld.target import SM_90A


def group_of(*outputs: Node) -> Group:
    (group,) = (g for g in make_plan(graph(*outputs), SM_90A).groups if g.fused)
    return group


def lifting_of(*outputs: Node) -> Lifting:
    found = lifted(group_of(*outputs))
    assert found is not None
    return found


def shapes(lifting: Lifting) -> list[str]:
    nodes = (*lifting.group.inputs, *lifting.group.outputs)
    return [", ".join(map(str, node.type.shape)) for node in nodes]


def test_sizes_that_happen_to_be_equal_have_names_of_their_own() -> None:
    m = Make()
    for c, h, w in ((6, 5, 4), (8, 8, 8)):
        x, mean = m.x(f"x{c}", 2, c, h, w), m.w(f"mean{c}", c)
        lifting = lifting_of(m.relu(m.sub(x, m.reshape(mean, c, 1, 1))))
        assert shapes(lifting) == ["s0, s1, s2, s3", "s1", "s0, s1, s2, s3"]
        assert lifting.values == (("s0", 2), ("s1", c), ("s2", h), ("s3", w))


def test_an_axis_of_size_one_says_what_is_broadcast() -> None:
    m = Make()
    lifting = lifting_of(m.add(m.x("x", 4, 1), m.x("y", 1, 6)))
    assert shapes(lifting) == ["s0, 1", "1, s1", "s0, s1"]


def test_a_symbolic_size_is_a_value() -> None:
    m = Make()
    lifting = lifting_of(m.exp(m.x("x", BATCH, 6)))
    assert lifting.values == (("s0", BATCH), ("s1", 6))


def test_merged_axes_are_a_product_and_parted_ones_have_names() -> None:
    m = Make()
    x, y = m.x("x", 4, 5, 6), m.x("y", 4, 30)
    assert shapes(lifting_of(m.add(m.reshape(x, 4, 30), y)))[2] == "s0, s1 * s2"
    z = m.x("z", 12, 7)
    parted = lifting_of(m.exp(m.permute(m.reshape(z, 3, 4, 7), 1, 0, 2)))
    assert shapes(parted) == ["s0 * s1, s2", "s1, s0, s2"]


def test_what_a_slice_begins_in_stays_a_number() -> None:
    m = Make()
    lifting = lifting_of(m.exp(m.slice(m.x("x", 8, 9), 1, 2, 3)))
    assert shapes(lifting) == ["s0, 9", "s0, 3"]


def test_operands_that_are_joined_give_a_sum() -> None:
    m = Make()
    lifting = lifting_of(m.exp(m.cat(1, m.x("x", 4, 5), m.x("y", 4, 6))))
    assert shapes(lifting) == ["s0, s1", "s0, s2", "s0, s1 + s2"]


def test_rows_of_known_length_keep_it() -> None:
    m = Make()
    x = m.x("x", 40, 64)
    lifting = lifting_of(m.sub(x, m.reduced("amax", x, 1)))
    assert shapes(lifting) == ["s0, 64", "s0, 64"]
    assert lifting.group.rows is not None and lifting.group.rows.length == 64


def test_rows_of_unknown_length_have_the_names_of_their_axes() -> None:
    m = Make()
    x = m.x("x", BATCH, 12, 7)
    group = group_of(m.sub(x, m.reduced("amax", x, 0, 2)))
    free, numbered = lifted(group), lifted(group, numbered_rows=True)
    assert free is not None and numbered is not None
    assert shapes(free)[0] == "s0, s1, s2" and shapes(numbered)[0] == "s0, s1, 7"
    assert free.group.reason == group.reason.replace("s0 * 7", "s0 * s2")


def test_what_is_reshaped_has_the_names_that_are_left() -> None:
    """Which of two equal sizes keeps its name is known when both are added, before the view."""
    m = Make()
    x, a, b = m.x("x", 2, 6, 5, 4), m.w("a", 6), m.w("b", 6)
    total = m.relu(m.sub(x, m.reshape(m.add(a, b), 6, 1, 1)))
    for one in (a, b):
        lifting = lifting_of(m.mul(total, m.reshape(one, 6, 1, 1)))
        assert sorted(shapes(lifting)[-1].split(", ")) == ["s0", "s1", "s2", "s3"]
        assert len(lifting.values) == 4


def test_windows_are_as_many_as_a_name_says_and_as_wide_as_they_were() -> None:
    m = Make()
    x = m.x("x", 2, 6, 9, 11)
    windows = m.windows(x, (3, 2, 0, 1), (3, 2, 0, 1))
    lifting = lifting_of(m.relu(m.reduced("amax", windows, 0, 1)))
    assert shapes(lifting) == ["s0, s1, s2, s3", "1, 1, s0, s1, s5, s4"]
    assert dict(lifting.values) == {"s0": 2, "s1": 6, "s2": 9, "s3": 11, "s4": 5, "s5": 4}
    assert lifting.group.rows is not None and lifting.group.rows.length == 9
