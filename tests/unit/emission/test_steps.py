"""Which calls of the user's modules are functions of their own, by where their statements stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from opweld.emission.steps import Flow, Scope, Step, below, flow_of, scopes_of, tracked_in
from opweld.ir.graph import Arena, ModuleCall, Node, Tracking
from opweld.ir.ops import Op
from opweld.ir.types import DType, TensorType


def values(count: int) -> list[Node]:
    arena = Arena()
    kind = TensorType(DType.F32, (4,))
    return [arena.source(Op.INPUT, f"x{i}", f"x{i}", kind) for i in range(count)]


def call(access: str) -> ModuleCall:
    path = access.removeprefix("self.").replace("[", ".").replace("]", "")
    return ModuleCall(access, path, access, "net:Block", 1, None, True)


def step(
    read: Sequence[Node], made: Sequence[Node], *chain: ModuleCall, across: Iterable[str] = ()
) -> Step:
    group: Any = SimpleNamespace(nodes=(), tensor_list=None)
    return Step(group, None, tuple(made), tuple(read), chain, frozenset(across))


def shape(scope: Scope) -> list[Any]:
    """The items of a scope: numbers of steps, and the accesses of calls with theirs."""
    return [item if isinstance(item, int) else (item.access, shape(item)) for item in scope.items]


A, B = call("self.a"), call("self.b")


def chained(*chains: tuple[ModuleCall, ...], across: Iterable[str] = ()) -> Flow:
    """Steps each of which reads what the one before made."""
    nodes = values(len(chains) + 1)
    steps = [
        step([nodes[i]], [nodes[i + 1]], *chain, across=across if i == 0 else ())
        for i, chain in enumerate(chains)
    ]
    return flow_of(steps, [nodes[-1]])


def test_a_call_whose_statements_stand_together_is_a_function() -> None:
    flow = chained((A,), (A,), (B,), (B,), ())
    assert shape(scopes_of(flow)) == [("self.a", [0, 1]), ("self.b", [2, 3]), 4]


def test_calls_inside_calls() -> None:
    inner = call("self.a.fc")
    flow = chained((A,), (A, inner), (A, inner), ())
    assert shape(scopes_of(flow)) == [("self.a", [0, ("self.a.fc", [1, 2])]), 3]


def test_statements_of_another_call_between_put_both_into_the_forward() -> None:
    flow = chained((A,), (B,), (A,), (B,))
    assert shape(scopes_of(flow)) == [0, 1, 2, 3]


def test_a_single_statement_is_no_function() -> None:
    assert shape(scopes_of(chained((A,), (B,), (B,)))) == [0, ("self.b", [1, 2])]


def test_a_call_that_gives_nothing_that_is_read_later_is_no_function() -> None:
    nodes = values(4)
    steps = [step([nodes[0]], [nodes[1]], A), step([nodes[1]], [nodes[2]], A),
             step([nodes[0]], [nodes[3]])]  # fmt: skip
    assert shape(scopes_of(flow_of(steps, [nodes[3]]))) == [0, 1, 2]
    assert shape(scopes_of(flow_of(steps, [nodes[2], nodes[3]]))) == [("self.a", [0, 1]), 2]


def test_a_kernel_across_the_boundary_puts_the_child_into_its_parent() -> None:
    flow = chained((), (A,), (A,), (B,), (B,), across=["self.a"])
    assert shape(scopes_of(flow)) == [0, 1, 2, ("self.b", [3, 4])]


def test_a_module_that_another_one_reaches_is_no_function_inside_it() -> None:
    flow = chained((B,), (B, A), (B, A), (B,))
    assert shape(scopes_of(flow)) == [("self.b", [0, 1, 2, 3])]


def test_what_has_no_place_goes_with_both_its_neighbours() -> None:
    nodes = values(4)
    steps = [step([nodes[i]], [nodes[i + 1]], A) for i in range(3)]
    steps[1] = Step(steps[1].group, None, steps[1].made, steps[1].read, None, frozenset())
    assert shape(scopes_of(flow_of(steps, [nodes[3]]))) == [("self.a", [0, 1, 2])]
    steps[2] = step(steps[2].read, steps[2].made, B)
    assert shape(scopes_of(flow_of(steps, [nodes[3]]))) == [0, 1, 2]


def test_values_read_and_made_by_a_range_of_steps() -> None:
    flow = chained((), (), ())
    nodes = [flow.steps[0].read[0], *(each.made[0] for each in flow.steps)]
    assert flow.read_by(1, 2) == [nodes[1]]
    assert flow.made_by(0, 1) == [nodes[2]]
    assert flow.made_by(2, 2) == [nodes[3]]


def test_accesses_from_a_module() -> None:
    assert below("self.blocks[0].fc", "self.blocks[0]") == "self.fc"
    assert below("self.blocks[0]", "self") == "self.blocks[0]"
    assert below("self.blocks10", "self.blocks1") is None
    assert below("self.a", "self.a") is None


def test_statistics_are_tracked_by_the_step_that_makes_both() -> None:
    x, mean, variance, y = values(4)
    steps = [step([x], [mean, variance], A), step([x, mean, variance], [y], A), step([y], [], A)]
    flow = flow_of(steps, [y, mean, variance])
    scope = scopes_of(flow)
    assert shape(scope) == [("self.a", [0, 1, 2])]
    tracking = Tracking("self.a.mean", "self.a.var", "self.a.count", 0.1, (1, 2))
    assert tracked_in(flow, scope, [(tracking, (mean, variance))]) == {0: [tracking]}
    assert tracked_in(flow, scope, [(tracking, (mean, y))]) is None
    assert tracked_in(flow, scope, [(tracking, (x, x))]) is None
    elsewhere = Tracking("self.b.mean", "self.b.var", None, 0.1, (1, 2))
    assert tracked_in(flow, scope, [(elsewhere, (mean, variance))]) is None
