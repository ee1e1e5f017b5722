"""Functions of torch that are recognised in what capture and simplify make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.capturing import graph_of, module_of
from torch.nn import functional

from opweld.emission.body import Body, reference
from opweld.emission.forward import forward
from opweld.emission.spelling.composites import COMPOSITES, calls
from opweld.ir.graph import Graph, Node, arena_of
from opweld.ir.operator import operator_of
from opweld.ir.ops import Op
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.plan.rows import Parallelism
from opweld.plan.single_pass import in_one_walk
from opweld.simplify import simplify
from opweld.target import CPU

Function = Callable[..., torch.Tensor]
SHAPE = (6, 5, 20)
ROW = torch.linspace(0.5, 1.5, 20)


def simplified(function: Function, *inputs: torch.Tensor, batch: bool = False) -> Graph:
    graph = graph_of(module_of(lambda self, *args: function(*args)), *inputs, batch=batch)
    return simplify(graph, arena_of(graph)).graph


def text_of(graph: Graph) -> str:
    """The statements that compute the graph's only output from x, y, ..."""
    body = Body(graph, "x.device", calls=calls(graph.nodes()))
    for node, name in zip(graph.inputs, "xyz", strict=False):
        body.texts[node.serial] = name
    result = body.text(graph.outputs[0])
    lines = [line for line in body.lines if line[0] != "#"]
    return "\n".join(["_s0 = x.shape[0]", *lines, f"out = {result}"])


def hard(shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)) * 2 + 0.3


def gradient(function: Function, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.clone().requires_grad_()
    out = function(x)
    weights = torch.linspace(-1, 1, out.numel(), dtype=x.dtype).reshape(out.shape)
    return out.detach(), torch.autograd.grad(out, x, weights)[0]


def spoken(text: str) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        names: dict[str, Any] = {"torch": torch, "x": x}
        exec(text, names)
        out: torch.Tensor = names["out"]
        return out

    return run


def softmax_by_hand(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.max(dim=-1, keepdim=True)[0])
    return powers / powers.sum(dim=-1, keepdim=True)


def softmax_without_kept_axes(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.amax(1).unsqueeze(1))
    return powers / powers.sum(1)[:, None]


def log_softmax_by_hand(x: torch.Tensor) -> torch.Tensor:
    shifted = x - x.amax(1, keepdim=True)
    return shifted - shifted.exp().sum(1, keepdim=True).log()


def layer_norm_by_hand(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-3)


def rms_by_hand(x: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt(x.pow(2).mean(dim=(1, 2), keepdim=True) + 1e-3)


def attention_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-3)


def moment(function: Function) -> Function:
    return lambda x: function(x, dim=2)


RECOGNISED: tuple[tuple[str, Function], ...] = (
    ("torch.softmax(x, dim=1)", lambda x: torch.softmax(x, 1)),
    ("torch.softmax(x, dim=2)", softmax_by_hand),
    ("torch.softmax(x, dim=1)", softmax_without_kept_axes),
    ("torch.log_softmax(x, dim=2)", lambda x: functional.log_softmax(x, -1)),
    ("torch.log_softmax(x, dim=1)", log_softmax_by_hand),
    ("torch.logsumexp(x, dim=2, keepdim=True)", moment(torch.logsumexp)),
    ("torch.logsumexp(x, dim=(0, 2), keepdim=True)", lambda x: torch.logsumexp(x, (0, 2))),
    ("torch.mean(x, dim=2, keepdim=True)", moment(torch.mean)),
    ("torch.mean(x, dim=(1, 2), keepdim=True)", lambda x: x.sum((1, 2), True) / 100),
    ("torch.mean(x, dim=0, keepdim=True)", lambda x: torch.mean(x, 0)),
    ("torch.var(x, dim=2, correction=1, keepdim=True)", moment(torch.var)),
    ("torch.var(x, dim=0, correction=1, keepdim=True)", lambda x: torch.var(x, 0)),
    ("torch.var(x, dim=2, correction=0, keepdim=True)", lambda x: x.var(2, unbiased=False)),
    ("torch.std(x, dim=2, correction=1, keepdim=True)", moment(torch.std)),
    ("torch.linalg.vector_norm(x, dim=2, keepdim=True)", moment(torch.linalg.vector_norm)),
    (
        "torch.nn.functional.layer_norm(x, (20,), eps=1e-05)",
        lambda x: functional.layer_norm(x, (20,)),
    ),
    (
        "torch.nn.functional.layer_norm(x, (5, 20), eps=0.1)",
        lambda x: functional.layer_norm(x, (5, 20), eps=0.1),
    ),
    (
        "torch.nn.functional.layer_norm(x, (20,), eps=1e-05)",
        lambda x: functional.instance_norm(x),
    ),
    (
        "torch.batch_norm(x, None, None, None, None, True, 0.0, 1e-05, True)",
        lambda x: functional.batch_norm(x, None, None, training=True),
    ),
    ("torch.nn.functional.layer_norm(x, (20,), eps=0.001)", layer_norm_by_hand),
    ("torch.nn.functional.rms_norm(x, (5, 20), eps=0.001)", rms_by_hand),
    ("torch.nn.functional.rms_norm(x, (20,), eps=0.001)", attention_norm),
    (
        "torch.nn.functional.rms_norm(x, (20,), eps=0.5)",
        lambda x: functional.rms_norm(x, (20,), eps=0.5),
    ),
)


CLASSES = torch.tensor([3, 0, 4, 1, 2, 2])


def test_a_cross_entropy_speaks_of_the_logarithms() -> None:
    """Its gradient is eager's: no largest is added and taken off again."""
    graph = graph_of(
        module_of(lambda self, x, y: functional.cross_entropy(x, y, reduction="sum")),
        hard((6, 5)).double(),
        CLASSES,
    )
    text = text_of(simplify(graph, arena_of(graph)).graph)
    assert "torch.log_softmax(x, dim=1)" in text and "torch.amax" not in text

    def run(x: torch.Tensor) -> torch.Tensor:
        names: dict[str, Any] = {"torch": torch, "x": x, "y": CLASSES}
        exec(text, names)
        out: torch.Tensor = names["out"]
        return out

    x = hard((6, 5)).double()
    found = gradient(run, x)
    expected = gradient(lambda x: functional.cross_entropy(x, CLASSES, reduction="sum"), x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize(("text", "function"), RECOGNISED, ids=[text for text, _ in RECOGNISED])
def test_a_composite_is_one_call(text: str, function: Function) -> None:
    spelled = text_of(simplified(function, hard().double()))
    assert text in spelled
    assert sum(op in spelled for op in ("torch.amax", "torch.sum", "torch.exp", "torch.max")) == 0
    values, gradients = gradient(spoken(spelled), hard().double())
    exact_values, exact_gradients = gradient(function, hard().double())
    torch.testing.assert_close(values, exact_values, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(gradients, exact_gradients, rtol=1e-10, atol=1e-12)


IN_ONE_WALK = ("softmax", "logsumexp", "var", "std", "layer_norm")


@pytest.mark.parametrize(
    ("text", "function"),
    [each for each in RECOGNISED if any(f"{name}(" in each[0] for name in IN_ONE_WALK)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_composite_whose_folds_share_a_walk_is_one_call(text: str, function: Function) -> None:
    graph = simplified(function, hard().double())
    walked = in_one_walk(graph, Parallelism(held_elems=0))
    assert any(node.op in (Op.SUMEXP, Op.DEVSQ) for node in walked.nodes())
    assert text_of(walked) == text_of(graph)


def powers_by_hand(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x - x.amax((0, 2), keepdim=True)).sum((0, 2))


def squares_by_hand(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(2, keepdim=True)).square().sum(2)


@pytest.mark.parametrize("function", [powers_by_hand, squares_by_hand])
def test_folds_that_share_a_walk_are_written_out(function: Function) -> None:
    walked = in_one_walk(simplified(function, hard().double()), Parallelism(held_elems=0))
    values, gradients = gradient(spoken(text_of(walked)), hard().double())
    exact_values, exact_gradients = gradient(function, hard().double())
    torch.testing.assert_close(values, exact_values)
    torch.testing.assert_close(gradients, exact_gradients)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax, torch.logsumexp])
def test_gradients_are_those_of_eager_bit_by_bit(function: Function) -> None:
    eager = moment(function)
    graph = simplified(eager, hard())
    ours, expected = gradient(spoken(text_of(graph)), hard()), gradient(eager, hard())
    for mine, yours in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, yours, rtol=0, atol=0)


def test_a_softmax_by_hand_has_gradients_closer_to_exact_than_eager() -> None:
    x = hard((64, 1, 1000))
    graph = simplified(softmax_by_hand, x)
    exact = gradient(softmax_by_hand, x.double())[1]
    ours = (gradient(spoken(text_of(graph)), x)[1] - exact).square().mean().sqrt()
    eager = (gradient(softmax_by_hand, x)[1] - exact).square().mean().sqrt()
    assert ours < eager


def test_rows_of_any_length_are_recognised() -> None:
    for text, function in (
        ("torch.mean(x, dim=0, keepdim=True)", lambda x: torch.mean(x, 0)),
        ("torch.mean(x, dim=(0, 1, 2), keepdim=True)", torch.mean),
        ("torch.var(x, dim=0, correction=1, keepdim=True)", lambda x: torch.var(x, 0)),
        ("torch.var(x, dim=0, correction=0, keepdim=True)", lambda x: x.var(0, unbiased=False)),
    ):
        graph = simplified(function, hard().double(), batch=True)
        assert graph.inputs[0].type.shape[0] != 6
        spelled = text_of(graph)
        assert text in spelled
        values, gradients = gradient(spoken(spelled), hard((7, 5, 20)).double())
        exact_values, exact_gradients = gradient(function, hard((7, 5, 20)).double())
        torch.testing.assert_close(values, exact_values)
        torch.testing.assert_close(gradients, exact_gradients)


def test_rows_of_a_power_of_two_are_recognised() -> None:
    x = hard((6, 4, 16)).double()
    for text, function in (
        ("torch.mean(x, dim=2", moment(torch.mean)),
        ("torch.var(x, dim=2, correction=0", lambda x: x.var(2, correction=0)),
        ("torch.var(x, dim=2, correction=1", moment(torch.var)),
        ("torch.nn.functional.layer_norm(x, (16,), ", lambda x: functional.layer_norm(x, (16,))),
    ):
        assert text in text_of(simplified(function, x))


@pytest.mark.parametrize("function", [torch.var, torch.std, torch.mean])
def test_moments_are_recognised_in_the_type_that_they_are_taken_in(function: Function) -> None:
    graph = simplified(moment(function), hard())
    spelled = text_of(graph)
    assert f"torch.{function.__name__}(" in spelled and "torch.sum(" not in spelled
    ours, exact = spoken(spelled)(hard()), moment(function)(hard().double())
    torch.testing.assert_close(ours.double(), exact, rtol=3e-7, atol=3e-7)


def test_half_types_are_cast_around_the_call() -> None:
    text = text_of(simplified(moment(torch.softmax), hard().bfloat16()))
    assert "torch.softmax(cast_out, dim=2)" in text
    expected = torch.softmax(hard().bfloat16(), 2)
    torch.testing.assert_close(spoken(text)(hard().bfloat16()), expected, rtol=0, atol=0)


def normed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, (20,), weight, bias)


def test_weight_and_bias_stand_outside_the_call() -> None:
    text = text_of(simplified(normed, hard(), ROW, ROW))
    assert "layer_norm_out = torch.nn.functional.layer_norm(x, (20,), eps=1e-05)" in text
    assert "layer_norm_out * y" in text


def other_rows(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.amax(1, keepdim=True))
    return powers / powers.sum(2, keepdim=True)


def over_two_axes(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.amax((1, 2), keepdim=True))
    return powers / powers.sum((1, 2), keepdim=True)


def maximum_of_another(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.abs().amax(2, keepdim=True))
    return powers / powers.sum(2, keepdim=True)


def minimum_instead(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.amin(2, keepdim=True))
    return powers / powers.sum(2, keepdim=True)


def total_of_another(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.amax(2, keepdim=True))
    return powers / powers.square().sum(2, keepdim=True)


def without_guard(x: torch.Tensor) -> torch.Tensor:
    largest = x.amax(2, keepdim=True)
    return torch.log(torch.exp(x - largest).sum(2, keepdim=True)) + largest


def eps_beside_the_deviation(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(2, keepdim=True)) / (x.std(2, keepdim=True) + 1e-5)


def eps_beside_the_root(x: torch.Tensor) -> torch.Tensor:
    return x / (torch.sqrt(x.square().mean(2, keepdim=True)) + 1e-5)


def unbiased(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(2, keepdim=True)) / torch.sqrt(x.var(2, keepdim=True) + 1e-5)


def over_leading_axes(x: torch.Tensor) -> torch.Tensor:
    mean, variance = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def centred_otherwise(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(2, keepdim=True)
    return (x - x.mean(1, keepdim=True)) * torch.rsqrt((x - mean).square().mean(2, True) + 1e-5)


REFUSED: tuple[tuple[str, Function], ...] = (
    ("softmax", other_rows),
    ("softmax", over_two_axes),
    ("softmax", maximum_of_another),
    ("softmax", minimum_instead),
    ("softmax", total_of_another),
    ("logsumexp", without_guard),
    ("layer_norm", eps_beside_the_deviation),
    ("layer_norm", unbiased),
    ("layer_norm", over_leading_axes),
    ("layer_norm", centred_otherwise),
    ("rms_norm", eps_beside_the_root),
    ("rms_norm", lambda x: x * torch.rsqrt(x.abs().mean(2, keepdim=True) + 1e-5)),
    ("mean", lambda x: x.sum(2) / 19),
    ("mean", lambda x: x.sum(2) * 20),
    ("mean", lambda x: x.sum(2) / 0.05),
    ("mean", lambda x: x[:, :4].sum(1) * 4),
    ("var", lambda x: x.var(2, correction=3)),
    ("norm", lambda x: x.square().sum(2).sqrt()),
)


@pytest.mark.parametrize(("name", "function"), REFUSED)
def test_what_only_looks_alike_is_written_out(name: str, function: Function) -> None:
    text = text_of(simplified(function, hard().double()))
    functions = {c.text.partition("(")[0] for c in COMPOSITES if c.name == name}
    assert functions and not any(f"{function}(" in text for function in functions)
    values, gradients = gradient(spoken(text), hard().double())
    exact_values, exact_gradients = gradient(function, hard().double())
    torch.testing.assert_close(values.reshape(exact_values.shape), exact_values)
    torch.testing.assert_close(gradients, exact_gradients)


def test_what_is_computed_elsewhere_is_no_part_of_a_call() -> None:
    nodes = simplified(softmax_by_hand, hard()).nodes()
    assert calls(nodes)

    def without(op: Op) -> tuple[Node, ...]:
        return tuple(node for node in nodes if node.op is not op)

    for op in (Op.AMAX, Op.SUB, Op.EXP, Op.SUM):
        assert not calls(without(op))


def with_its_powers(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    powers = torch.exp(x - x.amax(2, keepdim=True))
    return powers / powers.sum(2, keepdim=True), powers


def test_a_part_that_is_a_result_too_is_computed_too() -> None:
    plan = make_plan(simplified(with_its_powers, hard()), CPU, frozenset({"k1_sub_exp_div"}))
    text = "\n".join(forward(plan, {}, "x.device", [], ("x",)))
    assert "torch.softmax(args[0], dim=2)" in text and "torch.exp(" in text


def test_the_reference_of_a_kernel_speaks_in_composites() -> None:
    plan = make_plan(simplified(lambda x: torch.softmax(x, 2) + 1, hard()), CPU)
    (group,) = plan.groups
    text = reference(plan.graph, group, operator_of(group, *lower(plan)))
    head, *lines = (line.strip() for line in text.splitlines())
    operand = head.partition("(")[2].removesuffix("):")
    assert lines == [f"softmax_out = torch.softmax({operand}, dim=2)", "return softmax_out + 1.0"]


def test_a_group_that_is_given_back_speaks_in_composites() -> None:
    graph = simplified(normed, hard(), ROW, ROW)
    names = frozenset(group.name for group in make_plan(graph, CPU).groups)
    lines = forward(make_plan(graph, CPU, names), {}, "x.device", [], ("x",))
    assert sum(line[0] != "#" for line in lines) == 3
    assert "layer_norm_out = torch.nn.functional.layer_norm(args[0], (20,), eps=1e-05)" in lines


POOLS: dict[str, Function] = {
    "max_pool1d(": lambda x: functional.max_pool1d(x, 3, 2, 1),
    "max_pool2d(x, 2)": lambda x: functional.max_pool2d(x, 2),
    "ceil_mode=True, dilation=(2, 1)": lambda x: functional.max_pool2d(
        x, 2, (2, 3), 1, (2, 1), ceil_mode=True
    ),
    "avg_pool2d(x.unsqueeze(-2)": lambda x: functional.avg_pool1d(x, 4, 3, 2, True, False),
    "padding=(0, 1), divisor_override=1)": lambda x: functional.avg_pool2d(x, (2, 3), 1, (0, 1)),
    "avg_pool2d(x, (3, 5), divisor_override=1)": lambda x: functional.adaptive_avg_pool2d(
        x, (2, 4)
    ),
    "avg_pool3d(": lambda x: functional.avg_pool3d(x[None], 2, 1, 1),
    "max_pool1d(pad_out, 4, stride=3)": lambda x: (
        functional.pad(x, (1, 2)).unfold(2, 4, 3).max(-1)[0]
    ),
    "max_pool3d(": lambda x: functional.max_pool3d(x[:, None], (2, 1, 3), padding=(1, 0, 1)),
}


@pytest.mark.parametrize("call", POOLS)
def test_reductions_of_windows_are_pools(call: str) -> None:
    function, x = POOLS[call], hard((6, 6, 20)).mul(2).round()
    graph = simplified(function, x)
    text = text_of(graph)
    assert call in text and "unfold" not in text
    ours, slope = gradient(spoken(text), x)
    eager, expected = gradient(function, x)
    torch.testing.assert_close(ours, eager)
    torch.testing.assert_close(slope, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.unfold(2, 4, 3).amax(-1),
        lambda x: x.unfold(1, 2, 1).unfold(2, 3, 1).mean((0, -1)),
    ],
)
def test_other_reductions_of_windows_are_not(function: Function) -> None:
    x = hard().round()
    text = text_of(simplified(function, x))
    assert "_pool" not in text
    ours, slope = gradient(spoken(text), x)
    eager, expected = gradient(function, x)
    torch.testing.assert_close(ours, eager)
    torch.testing.assert_close(slope, expected)
