"""Every way to write a matrix product is seen as one, whatever the order of its axes."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.ir.attrs import CallAttrs, Operand, TorchLiteral
from opweld.ir.expr import evaluate
from opweld.ir.graph import Node
from opweld.ir.kernels.product import Axis, Matrix, Product
from opweld.ir.types import DType, TensorType
from opweld.plan.products.recognised import NoProduct, is_product, product_of

from .plans import BATCH, Make

SIZES = {"s0": 6}


def call(m: Make, target: str, arguments: tuple, shape: tuple, **keywords) -> Node:
    """A call whose arguments are nodes and plain values in any nesting."""
    inputs: list[Node] = []

    def written(value):
        if isinstance(value, tuple):
            return tuple(map(written, value))
        if not isinstance(value, Node):
            return value
        if value not in inputs:
            inputs.append(value)
        return Operand(inputs.index(value))

    result = TensorType(inputs_dtype(arguments), shape)
    words = tuple(map(written, arguments))
    attrs = CallAttrs(f"aten.{target}.default", words, tuple(keywords.items()), (result,), "")
    return m.arena.call(tuple(inputs), attrs)


def inputs_dtype(arguments) -> DType:
    flat = [a for each in arguments for a in (each if isinstance(each, tuple) else (each,))]
    return next(a.type.dtype for a in flat if isinstance(a, Node))


def matrix_of(array: np.ndarray, axes: Matrix) -> np.ndarray:
    """The operand as the kernels index it, [batch, rows, inner], without a copy of a value."""
    every = (*axes.batch, *axes.rows, *axes.inner)
    sizes = [evaluate(axis.size, SIZES) for axis in every]
    strides = [0 if axis.place is None else array.strides[axis.place] for axis in every]
    spread = np.lib.stride_tricks.as_strided(array, sizes, strides)
    counts = [
        int(np.prod([evaluate(axis.size, SIZES) for axis in role], dtype=int))
        for role in (axes.batch, axes.rows, axes.inner)
    ]
    return spread.reshape(counts)


def value_of(product: Product, feeds: dict[str, np.ndarray], shape: tuple) -> np.ndarray:
    a = matrix_of(feeds[product.a.attrs.name], product.a_axes)
    b = matrix_of(feeds[product.b.attrs.name], product.b_axes)
    result = np.einsum("bmk,bnk->bmn", a, b).reshape([evaluate(size, SIZES) for size in shape])
    if product.added is not None:
        result = result * product.alpha + feeds[product.added.attrs.name] * product.beta
    return result


def made(m: Make, name: str, *shape) -> tuple[Node, np.ndarray]:
    numbers = [evaluate(size, SIZES) for size in shape]
    seed = sum(map(ord, name))
    return m.x(name, *shape), np.random.default_rng(seed).standard_normal(numbers)


CASES = {
    "mm": (((BATCH, 3), (3, 5)), "mk,kn->mn"),
    "bmm": (((BATCH, 4, 3), (BATCH, 3, 5)), "bmk,bkn->bmn"),
    "mv": (((BATCH, 3), (3,)), "mk,k->m"),
    "dot": (((7,), (7,)), "k,k->"),
    "linear": (((BATCH, 2, 3), (5, 3)), "bmk,nk->bmn"),
    "inner": (((BATCH, 3), (2, 5, 3)), "mk,abk->mab"),
}
MATMULS = {
    "vectors": (((3,), (3,)), "k,k->"),
    "vector and matrix": (((3,), (3, 5)), "k,kn->n"),
    "matrix and vector": (((BATCH, 3), (3,)), "mk,k->m"),
    "rows of three axes": (((BATCH, 4, 3), (3, 5)), "bmk,kn->bmn"),
    "columns of three axes": (((4, 3), (BATCH, 3, 5)), "mk,bkn->bmn"),
    "batches": (((BATCH, 2, 4, 3), (BATCH, 2, 3, 5)), "abmk,abkn->abmn"),
    "broadcast batches": (((BATCH, 1, 4, 3), (2, 3, 5)), "abmk,bkn->abmn"),
    "each broadcasts another batch": (((BATCH, 1, 4, 3), (1, 2, 3, 5)), "abmk,abkn->abmn"),
    "one batch": (((1, 4, 3), (BATCH, 3, 5)), "bmk,bkn->bmn"),
    "batched vector": (((BATCH, 4, 3), (3,)), "bmk,k->bm"),
}
EINSUMS = {
    "bk,nk->bn": ((BATCH, 3), (5, 3)),
    "bk,nk->nb": ((BATCH, 3), (5, 3)),
    "bhqd,bkhd->bhqk": ((BATCH, 2, 4, 3), (BATCH, 5, 2, 3)),
    "abk,kcd->abcd": ((BATCH, 2, 3), (3, 4, 5)),
    "aij,ij->a": ((BATCH, 2, 3), (2, 3)),
    "...k,kn->...n": ((BATCH, 2, 3), (3, 5)),
    "ij,jk": ((BATCH, 3), (3, 5)),
    "ba,ca": ((BATCH, 3), (5, 3)),
}


def exact(equation: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By NumPy, with sizes of 1 broadcast where letters say so."""
    left = equation.split("->")[0].split(",")
    squeezed = []
    for array, term, other, letters in ((a, left[0], b, left[1]), (b, left[1], a, left[0])):
        if "." in term:
            return np.einsum(equation, a, b)
        sizes = dict(zip(letters, other.shape, strict=True))
        wide = [max(n, sizes.get(x, n)) for n, x in zip(array.shape, term, strict=True)]
        squeezed.append(np.broadcast_to(array, wide))
    return np.einsum(equation, *squeezed)


def check(target: str, shapes, equation: str, arguments=lambda a, b: (a, b)) -> Product:
    m = Make()
    (a, a_value), (b, b_value) = made(m, "a", *shapes[0]), made(m, "b", *shapes[1])
    wanted = exact(equation, a_value, b_value)
    shape = tuple(BATCH if size == SIZES["s0"] else size for size in wanted.shape)
    product = product_of(call(m, target, arguments(a, b), shape))
    np.testing.assert_allclose(value_of(product, {"a": a_value, "b": b_value}, shape), wanted)
    return product


@pytest.mark.parametrize("target", CASES)
def test_calls(target: str) -> None:
    check(target, *CASES[target])


@pytest.mark.parametrize("name", MATMULS)
def test_matmul_of_any_ranks(name: str) -> None:
    check("matmul", *MATMULS[name])


@pytest.mark.parametrize("equation", EINSUMS)
def test_einsums(equation: str) -> None:
    check("einsum", EINSUMS[equation], equation, lambda a, b: (equation, (a, b)))


def test_tensordot() -> None:
    shapes = ((BATCH, 2, 3), (3, 5, 2))
    check("tensordot", shapes, "abc,cdb->ad", lambda a, b: (a, b, (1, 2), (2, 0)))
    check("tensordot", shapes, "abc,cdb->ad", lambda a, b: (a, b, (-1, 1), (0, -1)))


def test_batches_of_one_operand_alone_are_its_rows() -> None:
    product = check("matmul", ((BATCH, 4, 3), (3, 5)), "bmk,kn->bmn")
    assert product.batches == 1 and product.m == BATCH * 4
    product = check("matmul", ((4, 3), (BATCH, 3, 5)), "mk,bkn->bmn")
    assert product.batches == BATCH and product.a_axes.batch == (Axis(BATCH, None),)


def test_a_result_in_the_other_order_swaps_the_operands() -> None:
    product = check("einsum", ((BATCH, 3), (5, 3)), "bk,nk->nb", lambda a, b: ("bk,nk->nb", (a, b)))
    assert (product.a.attrs.name, product.b.attrs.name, product.batches) == ("b", "a", 1)


@pytest.mark.parametrize(
    ("target", "shapes", "equation"),
    [
        ("addmm", ((BATCH, 5), (BATCH, 3), (3, 5)), "mk,kn->mn"),
        ("addmm", ((5,), (BATCH, 3), (3, 5)), "mk,kn->mn"),
        ("baddbmm", ((BATCH, 4, 1), (BATCH, 4, 3), (BATCH, 3, 5)), "bmk,bkn->bmn"),
        ("addmv", ((BATCH,), (BATCH, 3), (3,)), "mk,k->m"),
    ],
)
def test_what_is_added_is_scaled(target: str, shapes, equation: str) -> None:
    m = Make()
    named = [made(m, name, *shape) for name, shape in zip(("c", "a", "b"), shapes, strict=True)]
    (c, c_value), (a, a_value), (b, b_value) = named
    wanted = exact(equation, a_value, b_value)
    shape = tuple(BATCH if size == SIZES["s0"] else size for size in wanted.shape)
    feeds = {"a": a_value, "b": b_value, "c": c_value}
    plain = product_of(call(m, target, (c, a, b), shape))
    np.testing.assert_allclose(value_of(plain, feeds, shape), wanted + c_value)
    scaled = product_of(call(m, target, (c, a, b), shape, beta=0.5, alpha=-2))
    np.testing.assert_allclose(value_of(scaled, feeds, shape), -2 * wanted + 0.5 * c_value)
    alone = product_of(call(m, target, (c, a, b), shape, beta=0, alpha=3))
    assert alone.added is None and alone.alpha == 3


def test_the_bias_of_a_linear_is_added() -> None:
    m = Make()
    x, w, bias = m.x("x", BATCH, 3), m.w("w", 5, 3), m.w("bias", 5)
    assert product_of(call(m, "linear", (x, w, bias), (BATCH, 5))).added is bias
    assert product_of(call(m, "linear", (x, w, None), (BATCH, 5))).added is None


def test_views_before_the_operands_are_axes() -> None:
    m = Make()
    x, w = m.x("x", BATCH, 3), m.w("w", 5, 3)
    product = product_of(call(m, "mm", (x, m.permute(w, 1, 0)), (BATCH, 5)))
    assert product.b is w and product.b_axes == Matrix((), (Axis(5, 0),), (Axis(3, 1),))
    lifted = m.reshape(x, BATCH, 1, 3)
    product = product_of(call(m, "matmul", (lifted, m.permute(w, 1, 0)), (BATCH, 1, 5)))
    assert product.a is x
    assert product.a_axes.rows == (Axis(BATCH, 0), Axis(1, None))
    shared = m.expand(m.reshape(w, 1, 5, 3), BATCH, 5, 3)
    y = m.x("y", BATCH, 3, 2)
    product = product_of(call(m, "bmm", (shared, y), (BATCH, 5, 2)))
    assert product.a is w and product.a_axes.batch == (Axis(BATCH, None),)


def test_a_view_that_moves_or_mixes_stays_a_tensor() -> None:
    m = Make()
    x, w = m.x("x", BATCH, 2, 3), m.w("w", 6, 5)
    mixed = m.reshape(x, BATCH, 6)
    assert product_of(call(m, "mm", (mixed, w), (BATCH, 5))).a is mixed
    half = m.slice(w, 0, 0, 3)
    y = m.x("y", BATCH, 3)
    assert product_of(call(m, "mm", (y, half), (BATCH, 5))).b is half


def refusal(node: Node) -> str:
    with pytest.raises(NoProduct) as refused:
        product_of(node)
    return str(refused.value)


def test_what_is_no_product_says_why() -> None:
    m = Make()
    x, y = m.x("x", BATCH, 3), m.x("y", BATCH, 3)
    square = m.x("square", 3, 3)
    d = m.x("d", BATCH, 3, dtype=DType.F64)
    h = m.x("h", 3, 5, dtype=DType.F16)
    cases = {
        "sums row by row": call(m, "einsum", ("bk,bk->b", (x, y)), (BATCH,)),
        "sums nothing": call(m, "einsum", ("bi,bj->bij", (x, y)), (BATCH, 3, 3)),
        "by itself": call(m, "einsum", ("bk,kj->b", (x, square)), (BATCH,)),
        "diagonal": call(m, "einsum", ("kk,kj->j", (square, square)), (3,)),
        "3 operands": call(m, "einsum", ("bk,kj,jm->bm", (x, square, square)), (BATCH, 3)),
        "multiplies f64": call(m, "einsum", ("bk,ck->bc", (d, d)), (BATCH, BATCH)),
        "not of the result's type": call(m, "mm", (x, h), (BATCH, 5)),
        "a constant": call(m, "mm", (x, m.expand(m.const(2.0), 3, 5)), (BATCH, 5)),
        "unknown way": call(m, "linear", (x,), (BATCH, 3)),
        "unknown shape": call(m, "mm", (x, square), (BATCH, 4)),
        "by a size": call(m, "addmm", (x, x, square), (BATCH, 3), alpha=BATCH),
    }
    for reason, node in cases.items():
        assert reason in refusal(node)


def test_other_calls_are_none() -> None:
    m = Make()
    x = m.x("x", BATCH, 3)
    assert not is_product(call(m, "softmax", (x, 1), (BATCH, 3)))
    assert not is_product(m.exp(x))
    assert is_product(call(m, "mm", (x, x, TorchLiteral("torch.float32")), (BATCH, 3)))
