from __future__ import annotations

import random

from tests.unit.ir.graphs import graph

from opweld.ir.graph import Node
from opweld.plan.reachability import reach_of
from opweld.plan.uses import Uses, computes, uses_of

from .plans import Make


def random_uses(rng: random.Random) -> Uses:
    m = Make()
    pool = [m.x(name, 4) for name in "abcdef"]
    for _ in range(24):
        kind = rng.choice(["add", "call", "flip", "neg", "neg", "permute"])
        a, b = rng.choice(pool), rng.choice(pool)
        if kind == "add":
            pool.append(m.add(a, b))
        elif kind == "call":
            pool.append(m.call(a))
        elif kind == "flip":
            pool.append(m.flip(a, 0))
        else:
            pool.append(m.neg(a) if kind == "neg" else m.permute(a, 0))
    return uses_of(graph(*pool[-12:]))


def walks_back(uses: Uses, unit_of: dict[int, int], left: int, right: int) -> bool:
    """Whether a walk over readers, from unit to unit, leaves two units and enters them again."""
    inside = {unit_of[left], unit_of[right]}
    members: dict[int, list[Node]] = {}
    for node in uses.nodes:
        members.setdefault(unit_of[uses.place[node.serial]], []).append(node)
    step = {
        unit: {unit_of[uses.place[r.serial]] for node in nodes for r in uses.readers[node.serial]}
        for unit, nodes in members.items()
    }
    waiting = [unit for start in sorted(inside) for unit in step[start] if unit not in inside]
    seen: set[int] = set()
    while waiting:
        unit = waiting.pop()
        if unit in inside:
            return True
        if unit not in seen:
            seen.add(unit)
            waiting.extend(step[unit])
    return False


def test_returns_is_what_a_walk_finds():
    answers = []
    for seed in range(60):
        rng = random.Random(seed)
        uses = random_uses(rng)
        reach = reach_of(uses)
        unit_of = {place: place for place in range(len(uses.nodes))}
        computing = [uses.place[node.serial] for node in uses.nodes if computes(node)]
        for _ in range(30):
            left, right = rng.choice(computing), rng.choice(computing)
            if unit_of[left] == unit_of[right]:
                continue
            expected = walks_back(uses, unit_of, left, right)
            assert reach.returns(left, right) is expected
            answers.append(expected)
            if not expected:
                reach.merge(left, right)
                kept, gone = unit_of[left], unit_of[right]
                unit_of = {p: kept if unit == gone else unit for p, unit in unit_of.items()}
    assert answers.count(True) > 50 and answers.count(False) > 50
