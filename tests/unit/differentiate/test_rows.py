"""Graphs of gradients, evaluated in float64, against autograd: a case for each row."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.capturing import graph_of, module_of
from tests.one_walk import EVERY_ROW
from tests.unit.emission.test_backward import CASES as CLOSED
from tests.unit.emission.test_backward import ROW, SQUARE, WIDE, X, Y, hard, positive
from tests.unit.plan.plans import Make, graph
from torch.nn import functional as F

from opweld.differentiate import binary, differentiate, pointwise, products, shapes
from opweld.ir.attrs import CallAttrs, GatherAttrs, Operand
from opweld.ir.graph import Graph, Node, arena_of, topological
from opweld.ir.numpy.interpret import interpret_outputs
from opweld.ir.operator import operator_over
from opweld.ir.ops import Op
from opweld.ir.original import Vjp
from opweld.ir.plan import Group, GroupKind
from opweld.ir.types import DType
from opweld.plan.groups import NO_ESTIMATE
from opweld.plan.single_pass import in_one_walk
from opweld.simplify import simplify

Function = Callable[..., Any]
SMALL = torch.tanh(X) * 0.9
EDGES = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0], dtype=torch.float64)
HARD = torch.cat((EDGES, torch.tensor([float("nan"), float("inf"), -float("inf")]).double()))
BASES = torch.tensor([0.0, 0.0, 0.0, 2.0, 2.0, 0.5], dtype=torch.float64)
EXPONENTS = torch.tensor([0.0, 2.0, 1.0, 0.0, 3.0, 1.0], dtype=torch.float64)
ZEROS = torch.tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [2.0, -1.0, 4.0]], dtype=torch.float64)
NUMBERS = torch.tensor([0, 2, 1, 1, 2, 0, 2])

# Beside those of the backwards in closed form.
MORE: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "exp2": (torch.exp2, (X,)),
    "log2": (torch.log2, (positive(4, 6),)),
    "log10": (torch.log10, (positive(4, 6),)),
    "tan": (torch.tan, (SMALL,)),
    "asin": (torch.asin, (SMALL,)),
    "acos": (torch.acos, (SMALL,)),
    "atan": (torch.atan, (X,)),
    "sinh": (torch.sinh, (SMALL,)),
    "cosh": (torch.cosh, (SMALL,)),
    "asinh": (torch.asinh, (X,)),
    "acosh": (torch.acosh, (positive(4, 6) + 1.0,)),
    "atanh": (torch.atanh, (SMALL,)),
    "erf": (torch.erf, (X,)),
    "erfc": (torch.erfc, (X,)),
    "softsign": (F.softsign, (X,)),
    "logsigmoid": (F.logsigmoid, (X,)),
    "tanhshrink": (F.tanhshrink, (X,)),
    "frac": (torch.frac, (X,)),
    "threshold": (lambda x: F.threshold(x, 0.3, -1.0), (X,)),
    "softshrink": (lambda x: F.softshrink(x, 0.5), (EDGES,)),
    "nan_to_num": (torch.nan_to_num, (HARD,)),
    "relu, edges": (F.relu, (HARD,)),
    "hardtanh, edges": (F.hardtanh, (HARD,)),
    "hardswish, edges": (F.hardswish, (EDGES,)),
    "hardsigmoid, edges": (F.hardsigmoid, (EDGES,)),
    "gelu, edges": (F.gelu, (EDGES,)),
    "elu, edges": (F.elu, (EDGES,)),
    "softplus, edges": (F.softplus, (EDGES * 10,)),
    "leaky_relu, edges": (F.leaky_relu, (HARD,)),
    "clamp_min": (lambda x: torch.clamp(x, min=0.5), (HARD,)),
    "clamp_max": (lambda x: torch.clamp(x, max=0.5), (HARD,)),
    "maximum": (torch.maximum, (X, Y)),
    "maximum, equal": (torch.maximum, (EDGES, EDGES.flip(0).abs())),
    "minimum": (torch.minimum, (X, ROW)),
    "pow": (lambda x: x**3.0 + x**2 + x**-1.5, (positive(4, 6),)),
    "atan2": (torch.atan2, (X, Y)),
    "pow, both": (torch.pow, (positive(4, 6), hard(4, 6))),
    "pow, of zeros": (torch.pow, (BASES, EXPONENTS)),
    "pow, of a number": (lambda x: torch.pow(2.5, x), (X,)),
    "xlogy": (torch.xlogy, (X, positive(6, 6))),
    "xlogy, zeros": (torch.xlogy, (BASES, EXPONENTS)),
    "logaddexp": (torch.logaddexp, (X, Y)),
    "logaddexp, far apart": (torch.logaddexp, (X * 1000.0, Y * 1000.0)),
    "fmax": (torch.fmax, (HARD, HARD.flip(0).abs())),
    "fmin": (torch.fmin, (HARD, HARD.flip(0).abs())),
    "fmod": (torch.fmod, (X, Y)),
    "remainder": (torch.remainder, (X, Y)),
    "remainder of a number": (lambda x: torch.remainder(x, 0.7), (X,)),
    "quotients without a rest": (
        lambda x, y: (
            torch.div(x, y, rounding_mode="floor") * x + torch.div(x, y, rounding_mode="trunc") * y
        ),
        (X, Y),
    ),
    "copysign": (torch.copysign, (HARD, HARD.flip(0))),
    "prod": (lambda x: torch.prod(x, 1) * 2, (X,)),
    "prod, zeros": (lambda x: torch.prod(x, 1) * 2, (ZEROS,)),
    "prod of all": (lambda x: torch.prod(x) * 2, (SMALL,)),
    "the first of the largest": (lambda x: torch.max(x, 1).values * 2, (X.round(),)),
    "the first of the smallest": (lambda x: torch.min(x, -1).values * 2, (X.round(),)),
    "the first of NaN": (lambda x: torch.max(x, 0).values * 2, (HARD,)),
    "slice, by steps": (lambda x: x[:, 1:4:2] * 2, (X,)),
    "slice, by steps from the start": (lambda x: x[..., ::3] * x[..., 1::3], (X,)),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 1) * 2, (X,)),
    "logcumsumexp, out of range": (lambda x: torch.logcumsumexp(x, -1), (X * 1000.0,)),
    "hypot": (torch.hypot, (positive(4, 6), hard(4, 6))),
    "prelu": (lambda x, w: F.prelu(x, w), (X, ROW[:4])),
    "lerp": (torch.lerp, (X, Y, ROW)),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=0.7), (X, Y, ROW)),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), (X,)),
    "softmax of infinities": (
        lambda x: torch.softmax(x, -1),
        (torch.where(X > 1.0, -float("inf"), X),),
    ),
    "flip": (lambda x: x.flip(0) * 2, (X,)),
    "window": (lambda x: x.unfold(2, 3, 3) * 2, (X,)),
    "cat": (lambda x, y: torch.cat((x, y, x), 1) * 2, (X, Y)),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 3), value=2.0) * 2, (X,)),
    "slice, behind the other": (lambda x: x[:, 1:3] * x[:, 2:4], (X,)),
    "amax": (lambda x: torch.amax(x, 1) * 2, (X.round(),)),
    "amin": (lambda x: torch.amin(x, (0, 2)) * 2, (X.round(),)),
    "devsq": (lambda x: torch.var(x, 1), (X,)),
    "cumsum": (lambda x: torch.cumsum(x, 1) * 2, (X,)),
    "deviations": (
        lambda x: ((x - x.mean(1, keepdim=True)) ** 2).sum(1) + (x - x.mean((1, 2), True)).sum(1),
        (X,),
    ),
    "deviations from less than the mean": (
        lambda x: ((x - x.sum(1, keepdim=True) * 0.125) ** 2).sum(1) * 0.5,
        (X,),
    ),
    "softmax of other axes": (
        lambda x: torch.exp(x - x.amax(2, True)) / torch.exp(x - x.amax(2, True)).sum((1, 2), True),
        (X,),
    ),
    "deviations of another": (
        lambda x, y: ((x - y.mean(1, keepdim=True)) ** 2).sum(1) * 0.5,
        (X, Y),
    ),
    "std": (lambda x: torch.std(x, -1, keepdim=True) + x, (X,)),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y) + 1.0, (ROW[:4], WIDE[0], SQUARE.T.clone())),
    "baddbmm": (
        lambda b, x, y: torch.baddbmm(b, x, y) + 1.0,
        (hard(5, 3, 2), WIDE, hard(5, 6, 2)),
    ),
    "mv": (lambda x, y: torch.mv(x, y).tanh(), (SQUARE, SQUARE[0])),
    "dot": (lambda x, y: torch.dot(x, y).tanh(), (SQUARE[0], SQUARE[1])),
    "pick": (lambda x, n: torch.gather(x, 0, n[None]) * 2, (hard(3, 7), NUMBERS)),
    "pick, the loss of classes": (
        lambda x, n: F.cross_entropy(x, n, label_smoothing=0.1),
        (hard(7, 3), torch.tensor([0, 2, -100, 1, 2, 0, 2])),
    ),
    "pick, from the end": (lambda x, n: x[:, n] * 2, (hard(7, 3), NUMBERS[:1] - 1)),
    "sign": (lambda x: x * torch.sign(x), (X,)),
    "floor": (lambda x: x * torch.floor(x), (X,)),
    "ceil": (lambda x: x * torch.ceil(x), (X,)),
    "round": (lambda x: x * torch.round(x), (X,)),
    "trunc": (lambda x: x * torch.trunc(x), (X,)),
    "a long chain": (lambda x: torch.tanh(x * x * x + x) * x, (X,)),
    "several results": (lambda x, y: (torch.tanh(x) * y, torch.tanh(x)), (X, Y)),
    "a result that is no number": (lambda x, y: (x * y, x > y), (X, Y)),
    "an integer operand": (lambda x, n: x * n, (hard(3, 7), NUMBERS)),
}
# Formulas of their own in the closed forms, of the library's kernels.
LEFT_OUT = {"slice", "max_pool2d", "max_pool2d, dilated"}
# PyTorch's kernels have 1/6 in float32, also where all else is float64.
SIXTHS, ROUNDED, EXACT = {"hardsigmoid", "hardswish"}, (1e-7, 1e-8), (1e-11, 1e-12)
CASES = {**{name: case for name, case in CLOSED.items() if name not in LEFT_OUT}, **MORE}


@functools.cache
def exported(function: Function, *inputs: torch.Tensor) -> Graph:
    """The graph of a function; tensors are compared by being the same."""
    return graph_of(module_of(lambda self, *args: function(*args)), *inputs, batch=False)


def vjp_of(
    function: Function,
    *inputs: torch.Tensor,
    one_walk: bool = False,
    again: bool = False,
    staying: Container[int] = range(9),
) -> tuple[Graph, Vjp | None]:
    """A function as one group, and its gradients; folds over a row in `one_walk` maybe, and what is
    costly computed `again` maybe. The results at the places `staying` are kept by others.
    """
    graph = exported(function, *inputs)
    graph = simplify(graph, arena_of(graph)).graph
    graph = in_one_walk(graph, EVERY_ROW) if one_walk else graph
    nodes = tuple(node for node in graph.nodes() if node not in graph.inputs)
    given = (GroupKind.POINTWISE, nodes, graph.inputs, graph.outputs, None, NO_ESTIMATE, "")
    group = Group("k1", *given)
    operator = operator_over(group, tuple("abcdef"[: len(inputs)]))
    return graph, differentiate(graph, group, operator, (), again, staying)


def called(attrs: CallAttrs, operands: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """PyTorch's own function."""
    _, name, overload = attrs.target.split(".")
    function = getattr(getattr(torch.ops.aten, name), overload)
    tensors = [torch.from_numpy(np.array(each)) for each in operands]

    def given(value: Any) -> Any:
        if isinstance(value, tuple):
            return [given(each) for each in value]
        return tensors[value.index] if isinstance(value, Operand) else value

    found = function(*map(given, attrs.arguments), **dict(attrs.keywords))
    several = found if isinstance(found, tuple) else (found,)
    return tuple(np.empty(0) if each is None else each.numpy() for each in several)


def gradients(
    graph: Graph, vjp: Vjp, inputs: tuple[torch.Tensor, ...], grads: list[torch.Tensor]
) -> list[torch.Tensor]:
    arrays = [each.numpy() for each in inputs]
    feeds = {n.attrs.access: a for n, a in zip(graph.inputs, arrays, strict=True)}
    values = [Graph("kept", graph.inputs, (), (node,), ("tuple", ())) for node in vjp.kept]
    kept = [interpret_outputs(each, feeds, {}, called, "float64")[0] for each in values]
    given = [*(each.numpy() for each in grads), *arrays, *kept]
    names = [node.attrs.access for node in vjp.graph.inputs]
    feeds = dict(zip(names, given, strict=True))
    found = interpret_outputs(vjp.graph, feeds, {}, called, "float64")
    return [torch.from_numpy(np.array(each)) for each in found]


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_autograds(name: str) -> None:
    check(name)


OF_ROWS = (
    "softmax",
    "log_softmax",
    "logsumexp",
    "layer_norm",
    "layer_norm, affine",
    "devsq",
    "std",
)


@pytest.mark.parametrize("name", OF_ROWS)
def test_gradients_of_folds_that_share_a_walk(name: str) -> None:
    ops = {node.op for node in check(name, one_walk=True).nodes()}
    assert ops & {Op.SUMEXP, Op.DEVSQ}


def check(name: str, *, one_walk: bool = False, again: bool = False) -> Graph:
    """That the gradients of a case are autograd's; gives its graph."""
    roundings = ROUNDED if name.partition(",")[0] in SIXTHS else EXACT
    return check_case(*CASES[name], one_walk=one_walk, again=again, roundings=roundings)


def check_case(
    function: Function,
    inputs: tuple[torch.Tensor, ...],
    *,
    one_walk: bool = False,
    again: bool = False,
    roundings: tuple[float, float] = EXACT,
) -> Graph:
    """That the gradients of a function are autograd's; gives its graph."""
    graph, vjp = vjp_of(function, *inputs, one_walk=one_walk, again=again)
    assert vjp is not None, "a row is missing"
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    results = function(*leaves)
    several = results if isinstance(results, tuple) else (results,)
    several = tuple(several[place] for place in vjp.differentiated)
    grads = [
        torch.cos(torch.arange(out.numel(), dtype=torch.float64)).reshape(out.shape).to(out)
        for out in several
    ]
    wanted = torch.autograd.grad(several, [leaves[place] for place in vjp.places], grads)
    found = gradients(graph, vjp, inputs, grads)
    assert vjp.places == tuple(i for i, x in enumerate(inputs) if x.is_floating_point())
    for ours, theirs in zip(found, wanted, strict=True):
        ours = ours.to(theirs.dtype)
        rtol, atol = roundings
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)
    return graph


def test_every_row_has_a_case() -> None:
    cases = [*CASES.values(), CASES["devsq"]]
    graphs = [
        vjp_of(function, *inputs, one_walk=place == len(CASES))[0]
        for place, (function, inputs) in enumerate(cases)
    ]
    nodes = [node for graph in graphs for node in graph.nodes()]
    ops = {node.op for node in nodes}
    assert {*pointwise.ROWS, *binary.ROWS, *shapes.ROWS} - ops == set()
    targets = {node.attrs.target for node in nodes if node.op is Op.CALL}
    assert products._ROWS.keys() - targets == set()


@pytest.mark.parametrize(
    "function",
    [
        torch.floor,
        lambda x: torch.cumprod(x, 0),
        lambda x: torch.cummax(x, 0).values * 2,
        lambda x: torch.pow(0.0, x),
        lambda x: torch.addmm(x[0, 2], x[0, 0], x[0, 1], beta=0.5) + 1.0,
    ],
    ids=[
        "zero everywhere",
        "products",
        "largest so far",
        "powers of 0",
        "factors of a product",
    ],
)
def test_what_has_no_row_has_no_graph(function: Function) -> None:
    assert vjp_of(function, X)[1] is None


def test_a_norm_takes_two_sums_of_its_gradient() -> None:
    """That of the mean behind the variance is 0, and needs no walk."""
    _, vjp = vjp_of(lambda x: F.layer_norm(x, (6,)), X)
    assert vjp is not None
    reads_grad = {vjp.graph.inputs[0].serial}
    for node in vjp.graph.nodes():
        if any(each.serial in reads_grad for each in node.inputs):
            reads_grad.add(node.serial)
    sums = [n for n in vjp.graph.nodes() if n.op is Op.SUM and n.serial in reads_grad]
    assert len(sums) == 2


def group_of(result: Node, *inputs: Node) -> Group:
    nodes = tuple(node for node in topological((result,)) if node not in inputs)
    return Group("k1", GroupKind.POINTWISE, nodes, inputs, (result,), None, NO_ESTIMATE, "")


def test_exclusive_scans_leave_their_own_element_out() -> None:
    m = Make()
    x = m.x("x", 3, 5, dtype=DType.F64)
    result = m.scanned("cumsum", x, 1, exclusive=True)
    vjp = differentiate(graph(result), group := group_of(result, x), operator_over(group, ("x",)))
    assert vjp is not None
    grad = np.arange(15.0).reshape(3, 5)
    (found,) = interpret_outputs(vjp.graph, {"grad": grad, "x": grad}, {}, None, "float64")
    behind = np.cumsum(grad[:, ::-1], 1)[:, ::-1] - grad
    np.testing.assert_allclose(found, behind)


def test_deviations_from_the_mean_of_another_reach_both() -> None:
    m = Make()
    x, y = (m.x(name, 3, 5, dtype=DType.F64) for name in "xy")
    deviation = m.sub(x, m.reduced("mean", y, 1))
    group = group_of(m.reduced("sum", m.mul(deviation, deviation), 1), x, y)
    vjp = differentiate(graph(*group.outputs), group, operator_over(group, ("x", "y")))
    assert vjp is not None and vjp.places == (0, 1)


def test_products_of_attention_keep_pytorch_s_gradients() -> None:
    """Those of PyTorch's attention are summed in parts, which no product of ours is."""
    m = Make()
    x, y = (m.x(name, 3, 4, 4, dtype=DType.F64) for name in "xy")
    product = m.product("bmm", x, y, shape=(3, 4, 4))
    for summed, has_graph in ((False, True), (True, False)):
        attrs = replace(product.attrs, summed_in_parts=summed)
        result = m.mul(m.arena.call((x, y), attrs), m.const(2.0, DType.F64))
        group = group_of(result, x, y)
        vjp = differentiate(graph(result), group, operator_over(group, ("x", "y")))
        assert (vjp is not None) is has_graph


@pytest.mark.parametrize(("padding", "calls"), [(None, 0), (2, 1)])
def test_a_row_that_only_pads_has_no_gradient(padding: int | None, calls: int) -> None:
    m = Make()
    x, index = m.x("x", 5, 3, dtype=DType.F64), m.x("index", 1, 1, dtype=DType.I64)
    picked = m.arena.make(Op.GATHER, x, index, attrs=GatherAttrs(0, padding=padding))
    group = group_of(m.mul(picked, m.const(2.0, DType.F64)), x, index)
    operator = operator_over(group, ("x", "index"))
    vjp = differentiate(graph(*group.outputs), group, operator)
    assert vjp is not None
    assert len([node for node in vjp.graph.nodes() if node.op is Op.CALL]) == calls


def test_lists_of_tensors_keep_the_reference() -> None:
    m = Make()
    x = m.x("x", 3, 4)
    group = group_of(m.mul(x, 2.0), x)
    operator = operator_over(group, ("x",))
    listed = replace(operator, arguments=(replace(operator.arguments[0], listed=1),))
    whole = graph(*group.outputs)
    assert differentiate(whole, group, operator) is not None
    assert differentiate(whole, group, listed) is None


def test_results_are_read_where_they_say_all() -> None:
    """No operation of the forward runs again."""
    _, vjp = vjp_of(lambda x: torch.tanh(x * 2.0), X)
    assert vjp is not None
    ops = [node.op for node in vjp.graph.nodes() if node.inputs]
    assert Op.TANH not in ops and len(vjp.kept) == 1


def test_products_are_kept_and_not_made_again() -> None:
    _, vjp = vjp_of(lambda x, w: F.gelu(F.linear(x, w)), WIDE, SQUARE)
    assert vjp is not None and [node.op for node in vjp.kept] == [Op.CALL]
    calls = [node.attrs.target for node in vjp.graph.nodes() if node.op is Op.CALL]
    assert calls == ["aten.matmul.default"] * 2
    _, vjp = vjp_of(lambda x, w: F.relu(F.linear(x, w)), WIDE, SQUARE)
    assert vjp is not None and [node.op for node in vjp.kept] == [Op.RELU]
