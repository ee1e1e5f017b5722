"""Kernels that are given the tensors of a CAT as a list: one text for any number of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.emulation.operators import emulated_kernels, load_operators
from tests.unit.plan.plans import BATCH, Make, graph

from opweld.emission.body import reference
from opweld.emission.support import optional_texts, support_text
from opweld.ir.check import check
from opweld.ir.graph import Graph, Node
from opweld.ir.kernels.shared import fused_groups_of, kernels_of, sharing
from opweld.ir.original import Part
from opweld.ir.plan import Group
from opweld.lower import lower
from opweld.lower.lifting import lifting
from opweld.lower.tensor_lists import with_tensor_lists
from opweld.plan import make_plan
from opweld.render import render
from opweld.render.cuda.texts import runs_by_skeleton
from opweld.render.host.texts import host
from opweld.target import SM_90A

# The sizes along the axis: widths that allow packets and others, tensors of one element and of
# none, and more tensors than one launch takes.
MANY = 40
SIZES = ((8, 4), (4, 8, 12), (16, 4, 4, 8, 4), (3, 5), (1, 2, 1), (7, 0, 1, 6, 2), (1,) * MANY)


@dataclass(frozen=True)
class Case:
    """`of` computes something of a joined tensor and another one, in a graph; both have their size
    along `axis` from a list of tensors, and these `shape` and `other` beside it.
    """

    of: Callable[[Make, Node, Node], Node]
    axis: int
    shape: tuple[Any, ...]
    other: tuple[int, ...]

    def with_size(self, size: int, batch: Any = BATCH) -> tuple[Any, ...]:
        shape = (*self.shape[: self.axis], size, *self.shape[self.axis + 1 :])
        return tuple(batch if each is BATCH else each for each in shape)

    def other_of(self, size: int) -> tuple[int, ...]:
        return tuple(size if each < 0 else each for each in self.other)


def normed(m: Make, joined: Node, weight: Node) -> Node:
    """Each channel by its sum over all else: a row is of one tensor."""
    return m.mul(m.sub(joined, m.reduced("sum", joined, 0, 2, 3)), weight)


def across(m: Make, joined: Node, factor: Node) -> Node:
    """Rows whose neighbours in memory are of other rows."""
    return m.mul(joined, m.add(m.reduced("amax", joined, 1), factor))


CASES = {
    "channels": Case(lambda m, x, w: m.relu(m.mul(x, w)), 1, (BATCH, 0, 4, 6), (1, -1, 1, 1)),
    "rows": Case(lambda m, x, w: m.add(m.relu(x), w), 2, (BATCH, 5, 0), (-1,)),
    "first": Case(lambda m, x, w: m.mul(x, w), 0, (0, 3, 6), (-1, 1, 1)),
    "normed": Case(normed, 1, (BATCH, 0, 4, 6), (1, -1, 1, 1)),
    "across": Case(across, 2, (BATCH, 80, 0), (1, 1, -1)),
}


def graph_of(case: Case, lists: bool) -> Graph:
    """One result for each of SIZES, of a CAT or of a tensor that is joined already."""
    m, results = Make(), []
    for number, sizes in enumerate(SIZES):
        shapes = [case.with_size(size) for size in sizes]
        tensors = [m.x(f"x{number}_{i}", *shape) for i, shape in enumerate(shapes)]
        whole = (
            m.cat(case.axis, *tensors) if lists else m.x(f"x{number}", *joined_shape(case, sizes))
        )
        results.append(case.of(m, whole, m.x(f"w{number}", *case.other_of(sum(sizes)))))
    return graph(*results)


def joined_shape(case: Case, sizes: Sequence[int]) -> tuple[Any, ...]:
    return case.with_size(sum(sizes))


@dataclass(frozen=True)
class Built:
    parts: tuple[Part, ...]
    text: str
    ops: Any

    @property
    def groups(self) -> list[Group]:
        return [group for group in self.parts[0].plan.groups if group.fused]


def built(case: Case, lists: bool) -> Built:
    plan = make_plan(graph_of(case, lists), SM_90A)
    plan = with_tensor_lists(plan, runs_by_skeleton) if lists else plan
    parts = sharing(lifting((Part(None, plan, lower(plan)),), "cuda"))  # type: ignore[arg-type]
    text = render("lists", kernels_of(parts), "cuda").text
    ops, _ = load_operators(emulated_kernels(text), host(parts, "cuda").text)
    return Built(parts, text, ops)


def every_second(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(2, dim=-1)[..., ::2]


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, -1).contiguous().transpose(1, -1)


def misaligned(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)


LAYOUTS = (torch.Tensor.contiguous, every_second, channels_last, misaligned)


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_a_tensor_that_is_joined_already(name: str) -> None:
    """Bit by bit, where sums are added in one order: packets are or are not of several terms."""
    torch.manual_seed(5)
    case = CASES[name]
    ours, theirs = built(case, True), built(case, False)
    listed = ours.text.count("op::pointwise_of_list<") + ours.text.count("op::reduce_list<")
    assert listed == len(fused_groups_of(ours.parts)) <= 3
    for batch in (1, 3):
        for mine, other, sizes in zip(ours.groups, theirs.groups, SIZES, strict=True):
            plain = [torch.randn(case.with_size(size, batch)) for size in sizes]
            weight = torch.randn(case.other_of(sum(sizes)))
            wanted = getattr(theirs.ops, other.name)(torch.cat(plain, case.axis), weight)
            for layout in LAYOUTS:
                found = getattr(ours.ops, mine.name)([layout(x) for x in plain], weight)
                assert found.stride() == wanted.stride()
                exact = name != "normed" or layout is torch.Tensor.contiguous
                close = {"rtol": 0, "atol": 0} if exact else {}
                torch.testing.assert_close(found, wanted, **close)


@dataclass(frozen=True)
class Fused:
    """The function that a forward calls of an operator, and the operator."""

    function: Callable[..., torch.Tensor]
    op: Any


@pytest.fixture(scope="module")
def fused() -> Fused:
    """Of the kernel over lists along channels, as the support code makes it of any file's."""
    made = built(CASES["channels"], True)
    graph, group, _, operator = fused_groups_of(made.parts)[0]
    text = reference(graph, group, operator)
    names: dict[str, Any] = {"torch": torch}
    for each in (support_text("cuda"), *optional_texts("_fused_over_list("), text):
        exec(each, names)
    op, told = getattr(made.ops, group.name).default, names[f"_{group.name}_reference"]

    def fake(x: list[torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
        return x[0].new_empty((x[0].shape[0], weight.shape[1], *x[0].shape[2:]))

    return Fused(names["_fused_over_list"](op, told, fake, 0, (2, 3)), op)


def of_channels(tensors: Sequence[torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.cat([*tensors], 1) * weight)


def channels(*sizes: int) -> list[torch.Tensor]:
    torch.manual_seed(6)
    return [torch.randn(3, size, 4, 6) for size in sizes]


@pytest.mark.parametrize("sizes", [(8, 4), (4, 8, 12)])
def test_gradients_reach_each_tensor_of_a_list(fused: Fused, sizes: Sequence[int]) -> None:
    tensors, weight = channels(*sizes), torch.randn(1, sum(sizes), 1, 1)

    def total(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda tensors, weight: (function([*tensors], weight) ** 2).sum()

    wanted = torch.func.grad(total(of_channels), (0, 1))(tuple(tensors), weight)
    found = torch.func.grad(total(fused.function), (0, 1))(tuple(tensors), weight)
    torch.testing.assert_close(found, wanted)
    leaves = [x.clone().requires_grad_() for x in (*tensors, weight)]
    total(fused.function)(leaves[:-1], leaves[-1]).backward()
    torch.testing.assert_close([x.grad for x in leaves], [*wanted[0], wanted[1]])


def test_a_list_is_mapped_over(fused: Fused) -> None:
    one, other = channels(8, 4)
    weight = torch.randn(5, 1, 12, 1, 1)
    one = torch.stack([one * scale for scale in range(5)])
    mapped = torch.vmap(lambda x, w: fused.function([x, other], w))(one, weight)
    wanted = torch.vmap(lambda x, w: of_channels([x, other], w))(one, weight)
    torch.testing.assert_close(mapped, wanted, rtol=0, atol=0)


def test_the_operator_is_one_of_torch(fused: Fused) -> None:
    tensors, weight = channels(8, 4), torch.randn(1, 12, 1, 1)
    torch.library.opcheck(
        fused.op, (tensors, weight), test_utils=("test_schema", "test_faketensor")
    )


def test_what_does_not_fit_is_told(fused: Fused) -> None:
    weight = torch.randn(1, 12, 1, 1)
    with pytest.raises(RuntimeError, match="operand 2 does not fit"):
        fused.op(channels(8, 8), weight)
    with pytest.raises(RuntimeError, match="operand 1 does not fit"):
        fused.op([torch.randn(3, 8, 4, 6), torch.randn(3, 4, 4)], weight)
    with pytest.raises(RuntimeError, match="operand 1 does not fit"):
        fused.op([torch.randn(3, 8, 4, 6), torch.randn(3, 4, 4, 6, dtype=torch.double)], weight)


def test_what_no_skeleton_runs_reads_many_tensors_joined() -> None:
    """Rows that are of all tensors: PyTorch joins more than two before."""
    m = Make()
    for sizes in ((24, 8), (8, 8, 16)):
        tensors = [m.x(f"x{i}_{len(sizes)}", BATCH, size) for i, size in enumerate(sizes)]
        plan = make_plan(graph(m.reduced("sum", m.exp(m.cat(1, *tensors)), 1)), SM_90A)
        names = [group.name for group in with_tensor_lists(plan, runs_by_skeleton).groups]
        assert ("cat" in names) == (len(sizes) > 2)
        check(with_tensor_lists(plan, runs_by_skeleton))
