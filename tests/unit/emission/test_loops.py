"""Rows of calls are loops where a turn is given what the one before it made, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.emission.test_steps import call, values

from opweld.emission.loops.items import Called, Loop, in_loops
from opweld.emission.steps import Flow, Scope
from opweld.ir.contract import ModuleFact
from opweld.ir.graph import Node

LIST = "torch.nn.modules.container:ModuleList"


def listed(num_items: int, names: tuple[str, ...] | None = None) -> dict[str, ModuleFact]:
    names = names or tuple(map(str, range(num_items)))
    return {"blocks": ModuleFact("blocks", LIST, (("_modules", names),), None)}


def called(number: int, step: int, given: tuple[Node, ...], made: tuple[Node, ...]) -> Called:
    module = call(f"self.blocks[{number}]")
    return Called(module, Scope(module, step, step), "forward", given, made, ())


def chain(*numbers: int) -> tuple[list[Called], list[Node], Flow]:
    """Calls of these items, each of which is given what the one before made, and a mask."""
    mask, *nodes = values(len(numbers) + 2)
    calls = [
        called(number, step, (nodes[step], mask), (nodes[step + 1],))
        for step, number in enumerate(numbers)
    ]
    last_read = {node.serial: step for step, node in enumerate(nodes[:-1])}
    last_read |= {nodes[-1].serial: len(numbers), mask.serial: len(numbers) - 1}
    return calls, nodes, Flow((), {}, last_read, {})


def kinds(items: list[Any]) -> list[Any]:
    return [len(item.calls) if isinstance(item, Loop) else 1 for item in items]


def test_consecutive_items_are_one_loop() -> None:
    calls, _, flow = chain(0, 1, 2)
    (loop,) = in_loops(calls, flow, listed(3))
    assert isinstance(loop, Loop) and loop.calls == tuple(calls)
    assert (loop.container, loop.first, loop.num_items) == ("self.blocks", 0, 3)
    assert loop.carried == (0, None)


@pytest.mark.parametrize("numbers, text", [
    ((0, 1, 2, 3), "{container}"),
    ((1, 2, 3), "[*{container}][1:]"),
    ((0, 1), "[*{container}][:2]"),
    ((1, 2), "[*{container}][1:3]"),
])  # fmt: skip
def test_what_a_loop_is_over(numbers: tuple[int, ...], text: str) -> None:
    calls, _, flow = chain(*numbers)
    (loop,) = in_loops(calls, flow, listed(4))
    assert isinstance(loop, Loop) and loop.items == text


@pytest.mark.parametrize("numbers, found", [
    ((2, 1, 0), [1, 1, 1]),
    ((0, 2), [1, 1]),
    ((1, 1), [1, 1]),
    ((0, 1, 0, 1), [2, 2]),
    ((0, 1, 3), [2, 1]),
])  # fmt: skip
def test_items_in_another_order_are_no_loop(numbers: tuple[int, ...], found: list[int]) -> None:
    calls, _, flow = chain(*numbers)
    assert kinds(in_loops(calls, flow, listed(4))) == found


def test_statements_between_end_a_loop() -> None:
    calls, _, flow = chain(0, 1, 2, 3)
    items = in_loops([*calls[:2], 7, *calls[2:]], flow, listed(4))
    assert kinds(items) == [2, 1, 2]


def test_a_result_that_is_read_after_the_next_turn_ends_a_loop() -> None:
    calls, nodes, flow = chain(0, 1, 2, 3)
    kept = replace(flow, last_read={**flow.last_read, nodes[2].serial: 4})
    assert kinds(in_loops(calls, kept, listed(4))) == [2, 2]


def test_other_methods_arguments_and_names_end_a_loop() -> None:
    calls, nodes, flow = chain(0, 1)
    other = replace(calls[1], method="forward_2")
    assert kinds(in_loops([calls[0], other], flow, listed(2))) == [1, 1]
    other = replace(calls[1], extra=("scale",))
    assert kinds(in_loops([calls[0], other], flow, listed(2))) == [1, 1]
    other = replace(calls[1], arguments=(nodes[1], nodes[0]))
    assert kinds(in_loops([calls[0], other], flow, listed(2))) == [1, 1]


def test_values_change_places_in_every_turn_or_in_none() -> None:
    """A third call that is given them in another order is not of the same loop."""
    a, b, *more = values(8)
    calls = [called(0, 0, (a, b), (more[0], more[1])),
             called(1, 1, (more[0], more[1]), (more[2], more[3])),
             called(2, 2, (more[3], more[2]), (more[4], more[5]))]  # fmt: skip
    last_read = {node.serial: 1 for node in more[:2]} | {node.serial: 2 for node in more[2:4]}
    items = in_loops(calls, Flow((), {}, last_read, {}), listed(3))
    assert kinds(items) == [2, 1]
    assert isinstance(items[0], Loop) and items[0].carried == (0, 1)


@pytest.mark.parametrize("facts", [
    {},
    {"blocks": ModuleFact("blocks", "net:Blocks", (("_modules", ("0", "1")),), None)},
    listed(2, ("first", "second")),
])  # fmt: skip
def test_only_lists_as_pytorch_makes_them(facts: dict[str, ModuleFact]) -> None:
    calls, _, flow = chain(0, 1)
    assert kinds(in_loops(calls, flow, facts)) == [1, 1]
