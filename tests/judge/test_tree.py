"""Nested values: leaves in order, nesting compared by kind, rebuilt around changed tensors."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import torch

from opweld.judge.tree import leaves, map_tensors, structure, tensors

Point = namedtuple("Point", "x y")


@dataclass
class Output:
    hidden: torch.Tensor
    scale: float


def nested() -> object:
    return [torch.ones(2), {"k": (torch.zeros(1), 3)}, Output(torch.ones(1), 0.5), Point(1, None)]


def test_leaves_come_with_their_paths() -> None:
    paths = [path for path, _ in leaves(nested())]
    expected = ["[0]", "[1]['k'][0]", "[1]['k'][1]", "[2].hidden", "[2].scale", "[3].x", "[3].y"]
    assert paths == expected
    assert len(tensors(nested())) == 3


def test_nesting_is_compared_by_kind_and_names() -> None:
    @dataclass
    class Copy:
        hidden: torch.Tensor
        scale: float

    assert structure(Output(torch.ones(1), 1.0)) == structure(Copy(torch.ones(3), 2.0))
    assert structure([1, 2]) != structure((1, 2))
    assert structure({"a": 1}) != structure({"b": 1})
    assert structure([1]) != structure([1, 2])


def test_rebuilding_changes_tensors_only() -> None:
    changed = map_tensors(nested(), lambda t: t + 1)
    values = [float(t[0]) for t in tensors(changed)]
    assert values == [2.0, 1.0, 2.0]
    assert structure(changed) == structure(nested())
    assert changed[2].scale == 0.5 and changed[3] == Point(1, None)
