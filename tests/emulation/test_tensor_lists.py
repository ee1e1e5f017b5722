"""Kernels that are given the tensors of a CAT as a list: one text for any number of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tests.emulation.operators import emulated_kernels, load_operators
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.ir.graph import Node
from opweld.ir.original import Part
from opweld.ir.plan import Group
from opweld.ir.shared import kernels_of, sharing, welds_of
from opweld.lower import lower
from opweld.lower.lifting import lifting
from opweld.lower.tensor_lists import with_tensor_lists
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.cuda import runs_by_skeleton
from opweld.render.host import host
from opweld.target import SM_90A

# More tensors than one launch takes.
MANY = 40
# The sizes along the axis: widths that allow packets and others, of one element and of none.
SIZES = ((8, 4), (4, 8, 12), (16, 4, 4, 8, 4), (3, 5), (1, 2, 1), (7, 0, 1, 6, 2), (1,) * MANY)
Scaled = Callable[[Make, str, Sequence[int]], Node]


def along_channels(m: Make, name: str, sizes: Sequence[int]) -> Node:
    tensors = [m.x(f"{name}_{i}", BATCH, size, 4, 6) for i, size in enumerate(sizes)]
    weight = m.w(f"{name}_weight", sum(sizes))
    return m.relu(m.mul(m.cat(1, *tensors), m.reshape(weight, sum(sizes), 1, 1)))


def along_rows(m: Make, name: str, sizes: Sequence[int]) -> Node:
    """The innermost axis: what follows a tensor in a row is of the next."""
    tensors = [m.x(f"{name}_{i}", BATCH, 5, size) for i, size in enumerate(sizes)]
    return m.add(m.relu(m.cat(2, *tensors)), m.w(f"{name}_row", sum(sizes)))


def along_the_first(m: Make, name: str, sizes: Sequence[int]) -> Node:
    tensors = [m.x(f"{name}_{i}", size, 3, 6) for i, size in enumerate(sizes)]
    return m.mul(m.cat(0, *tensors), m.x(f"{name}_column", sum(sizes), 1, 1))


def computed(make: Scaled, tensors: list[torch.Tensor], other: torch.Tensor) -> torch.Tensor:
    if make is along_channels:
        return torch.relu(torch.cat(tensors, 1) * other.view(-1, 1, 1))
    if make is along_rows:
        return torch.relu(torch.cat(tensors, 2)) + other
    return torch.cat(tensors, 0) * other


def compiled(make: Scaled) -> tuple[tuple[Part, ...], Any, str]:
    """The part with one group for each of SIZES, the operators, and the text of the kernels."""
    m = Make()
    nodes = [make(m, f"x{k}", sizes) for k, sizes in enumerate(SIZES)]
    plan = with_tensor_lists(make_plan(graph(*nodes), SM_90A), runs_by_skeleton)
    parts = sharing(lifting((Part(None, plan, lower(plan)),), "cuda"))  # type: ignore[arg-type]
    text = render("lists", kernels_of(parts), "cuda").text
    ops, _ = load_operators(emulated_kernels(text), host(parts, "cuda").text)
    return parts, ops, text


def welded(parts: tuple[Part, ...]) -> list[Group]:
    return [group for group in parts[0].plan.groups if group.welded]


def tensors_of(make: Scaled, sizes: Sequence[int], batch: int) -> list[torch.Tensor]:
    shapes = {
        along_channels: lambda size: (batch, size, 4, 6),
        along_rows: lambda size: (batch, 5, size),
        along_the_first: lambda size: (size, 3, 6),
    }
    return [torch.randn(shapes[make](size)) for size in sizes]


def other_of(make: Scaled, sizes: Sequence[int]) -> torch.Tensor:
    return torch.randn((sum(sizes), 1, 1) if make is along_the_first else (sum(sizes),))


def every_second(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(2, dim=-1)[..., ::2]


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, -1).contiguous().transpose(1, -1)


def misaligned(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)


LAYOUTS = (torch.Tensor.contiguous, every_second, channels_last, misaligned)


@pytest.mark.parametrize("make", [along_channels, along_rows, along_the_first])
def test_the_bits_are_those_of_cat(make: Scaled) -> None:
    torch.manual_seed(5)
    parts, ops, text = compiled(make)
    groups = welded(parts)
    assert text.count("op::pointwise_of_list<") == len(welds_of(parts)) <= 2
    for batch in (1, 3):
        for group, sizes in zip(groups, SIZES, strict=True):
            plain, other = tensors_of(make, sizes, batch), other_of(make, sizes)
            for layout in LAYOUTS:
                tensors = [layout(x) for x in plain]
                found = getattr(ops, group.name)(tensors, other)
                assert found.is_contiguous()
                torch.testing.assert_close(found, computed(make, plain, other), rtol=0, atol=0)
