"""CUDA kernels for any sizes: whole operators under emulation, bit by bit those for one size."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from tests.emulation.operators import emulated_kernels, load_operators
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.expr import evaluate
from opweld.ir.graph import Node
from opweld.ir.kernels.shared import fused_groups_of, kernels_of, sharing
from opweld.ir.original import Part
from opweld.ir.plan import Group
from opweld.lower import lower
from opweld.lower.lifting import lifting
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.host.texts import host
from opweld.target import SM_90A

# The first two allow packets, the others none.
SHAPES = ((6, 4, 10), (3, 6, 6), (5, 5, 7), (2, 7, 7))


def scaled(m: Make, name: str, c: int, h: int, w: int) -> Node:
    x, weight = m.x(name, BATCH, c, h, w), m.w(f"{name}_weight", c)
    return m.tanh(m.mul(x, m.reshape(weight, c, 1, 1)))


def shifted(m: Make, name: str, c: int, h: int, w: int) -> Node:
    """Vectors at an address of their own, beside what is read in place."""
    x, row = m.x(name, BATCH, c, h * w), m.w(f"{name}_row", h * w)
    return m.add(m.mul(x, 2.0), row)


def normed(m: Make, name: str, c: int, h: int, w: int) -> Node:
    """By the sum over all but the channels, whose length nobody knows before."""
    x, weight = m.x(name, BATCH, c, h, w), m.w(f"{name}_weight", c)
    total = m.reduced("sum", x, 0, 2, 3)
    return m.add(m.mul(x, m.sigmoid(total)), m.reshape(weight, 1, c, 1, 1))


def operators(make: Callable[..., Node], over_names: bool) -> list[tuple[Group, Any]]:
    """The groups of all shapes with their operators: with names two stand for all four."""
    m = Make()
    results = [make(m, f"x{k}", *shape) for k, shape in enumerate(SHAPES)]
    plan = make_plan(graph(*results), SM_90A)
    part = Part(None, plan, lower(plan))  # type: ignore[arg-type]
    parts = sharing(lifting((part,), "cuda") if over_names else (part,))
    text = render("operator", kernels_of(parts), "cuda").text
    ops, _ = load_operators(emulated_kernels(text), host(parts, "cuda").text)
    groups = [group for group in parts[0].plan.groups if group.fused]
    assert len(fused_groups_of(parts)) == len(groups) // (2 if over_names else 1)
    return [(group, getattr(ops, group.name)) for group in groups]


def operands(group: Group, batch: int) -> list[torch.Tensor]:
    sizes = [[evaluate(s, {"s0": batch}) for s in node.type.shape] for node in group.inputs]
    return [torch.randn(shape) for shape in sizes]


def every_second(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(2, dim=-1)[..., ::2]


def misaligned(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)


LAYOUTS = (torch.Tensor.contiguous, every_second, misaligned)


@pytest.mark.parametrize("make", [scaled, shifted, normed])
def test_the_bits_are_those_of_kernels_for_one_size(make: Callable[..., Node]) -> None:
    torch.manual_seed(5)
    pairs = zip(operators(make, True), operators(make, False), strict=True)
    for (group, lifted), (_, numbered) in pairs:
        for batch, layout in product((0, 1, 3), LAYOUTS):
            given = list(map(layout, operands(group, batch)))
            ours, theirs = lifted(*given), numbered(*given)
            assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()


@pytest.mark.parametrize("make", [scaled, shifted, normed])
def test_sizes_without_whole_packets_are_right_in_a_kernel_of_packets(
    make: Callable[..., Node],
) -> None:
    """Nobody calls it so: the operator itself looks."""
    torch.manual_seed(6)
    packets = {group.kind: op for group, op in reversed(operators(make, True)) if whole(group)}
    for group, numbered in operators(make, False):
        given = operands(group, 3)
        torch.testing.assert_close(packets[group.kind](*given), numbered(*given))


def whole(group: Group) -> bool:
    return any(SHAPES[0][0] in node.type.shape for node in group.inputs)
