"""Every simplification against numbers: a wrong one is a wrong address that nothing else would
show.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opweld.ir.expr import (
    Expr,
    Quotient,
    Size,
    Symbol,
    at_least_zero,
    coefficient,
    divides,
    evaluate,
    less,
    name_of,
    product,
    quotient,
    remainder,
    substitute,
    substitute_unsimplified,
    symbol,
    symbols_of,
    terms_of,
    upper,
)

I, J, N, M = (symbol(name) for name in "ijnm")  # noqa: E741

# Loop variables i and j, free sizes n and m. The bound of j is a size.
BOUNDS: dict[str, Size] = {"i": 3, "j": N}
SIZES = (1, 2, 3)

variables = st.sampled_from([I, J, N, M])
small = st.integers(-4, 4)
divisors = st.sampled_from([1, 2, 3, 4, 6, N, M, N * 2, N * M, N + 2, M * 4])


def points(bounds: Mapping[str, Size] = BOUNDS) -> Iterator[dict[str, int]]:
    """Every value of the free sizes up to 3 and every value of the loop variables below their
    bounds.
    """
    for n, m in itertools.product(SIZES, SIZES):
        sizes = {"n": n, "m": m}
        ranges = [range(evaluate(limit, sizes)) for limit in bounds.values()]
        for values in itertools.product(*ranges):
            yield sizes | dict(zip(bounds, values, strict=True))


def sums(atoms: st.SearchStrategy[Size]) -> st.SearchStrategy[Size]:
    term = st.tuples(small, st.lists(atoms, max_size=2)).map(lambda t: product(t[1]) * t[0])
    return st.lists(term, min_size=1, max_size=4).map(lambda terms: sum(terms, start=0))


def divided(numerators: st.SearchStrategy[Size]) -> st.SearchStrategy[Size]:
    """Quotients and remainders of what is never below zero."""

    def build(numerator: Size, denominator: Size, kind: str) -> Size:
        assume(all(evaluate(numerator, point) >= 0 for point in points()))
        divide = quotient if kind == "quotient" else remainder
        return divide(numerator, denominator, BOUNDS)

    return st.builds(build, numerators, divisors, st.sampled_from(["quotient", "remainder"]))


positive_sums = st.lists(
    st.tuples(st.integers(0, 4), st.lists(variables, max_size=2)), min_size=1, max_size=4
).map(lambda terms: sum((product(atoms) * factor for factor, atoms in terms), start=0))
polynomials = sums(variables)
expressions = sums(variables | divided(positive_sums))


@given(polynomials, polynomials, polynomials)
def test_arithmetic_is_canonical(a: Size, b: Size, c: Size) -> None:
    assert (a + b) + c == a + (b + c)
    assert a * (b + c) == a * b + c * a
    assert a - a == 0
    assert a + b - b == a
    assert -(-a) == a  # noqa: B002


@given(expressions, expressions)
def test_arithmetic_means_the_numbers(a: Size, b: Size) -> None:
    for point in itertools.islice(points(), 0, None, 3):
        x, y = evaluate(a, point), evaluate(b, point)
        assert evaluate(a + b, point) == x + y
        assert evaluate(a - b, point) == x - y
        assert evaluate(a * b, point) == x * y
        assert evaluate(3 - a, point) == 3 - x
        assert evaluate(-a, point) == -x


def test_constants_are_plain_integers() -> None:
    assert (I + 2) - I == 2
    assert isinstance((I + 2) - I, int)
    assert I * 0 == 0
    assert product([]) == 1
    assert terms_of(0) == ()
    assert terms_of(3) == (((), 3),)


@given(expressions)
def test_the_text_is_python_for_the_value(value: Size) -> None:
    for point in itertools.islice(points(), 0, None, 5):
        assert eval(str(value), {}, point) == evaluate(value, point)


def test_text_groups_what_binds_less() -> None:
    half = Expr((((Quotient(I, N),), 1),))
    assert str(half) == "i // n"
    assert str(half * -1) == "-(i // n)"
    assert str(half * 3) == "(i // n) * 3"
    assert str(half * M) == "(i // n) * m"
    assert str(I * -2 + N) == "-2 * i + n"
    assert str(quotient(I + N * 2, M, {})) == "(i + n * 2) // m"


@given(polynomials, divisors)
def test_quotient_and_remainder_where_the_numerator_is_not_negative(
    numerator: Size, denominator: Size
) -> None:
    whole = quotient(numerator, denominator, BOUNDS)
    rest = remainder(numerator, denominator, BOUNDS)
    for point in points():
        top, bottom = evaluate(numerator, point), evaluate(denominator, point)
        if top >= 0:  # below zero, a guard keeps the value from being used
            assert evaluate(whole, point) == top // bottom
            assert evaluate(rest, point) == top % bottom


@given(expressions, divisors)
def test_quotients_of_quotients(numerator: Size, denominator: Size) -> None:
    whole = quotient(numerator, denominator, BOUNDS)
    rest = remainder(numerator, denominator, BOUNDS)
    for point in itertools.islice(points(), 0, None, 3):
        top, bottom = evaluate(numerator, point), evaluate(denominator, point)
        if top >= 0:
            assert evaluate(whole, point) == top // bottom
            assert evaluate(rest, point) == top % bottom


def test_what_is_simplified() -> None:
    bounds = {"i": N, "j": 6}
    assert quotient(I * 6 + J, 6, bounds) == I
    assert remainder(I * 6 + J, 6, bounds) == J
    assert quotient(J * N + I, N, bounds) == J
    assert remainder(J * N + I, N, bounds) == I
    assert quotient(I * 12 + J, 3, bounds) == I * 4 + quotient(J, 3, bounds)
    assert remainder(I * 12 + J, 3, bounds) == remainder(J, 3, bounds)
    assert quotient(N + 2, N + 2, {}) == 1
    assert remainder(17, 5, {}) == 2 and quotient(17, 5, {}) == 3


def test_a_numerator_that_may_be_negative_stays_whole() -> None:
    # At i = 1, j = 0 this is 3 // 4 == 0, but 1 + (-1) // 4 in C's division.
    value = quotient(I * 4 + J - 1, 4, {"i": 8, "j": 4})
    assert value == Expr((((Quotient(I * 4 + J - 1, 4),), 1),))
    assert remainder(I * 4 + J - 1, 4, {"i": 8, "j": 4}) != J - 1


def operands_of_divisions(value: Size) -> Iterator[tuple[Size, Size]]:
    for monomial, _ in terms_of(value):
        for atom in monomial:
            if not isinstance(atom, Symbol):
                yield atom.numerator, atom.denominator
                yield from operands_of_divisions(atom.numerator)


@given(polynomials, divisors)
def test_kept_divisions_divide_what_is_not_negative(numerator: Size, denominator: Size) -> None:
    """C divides towards zero, or unsigned: a numerator below zero would give another result."""
    both = (quotient(numerator, denominator, BOUNDS), remainder(numerator, denominator, BOUNDS))
    for point in points():
        if evaluate(numerator, point) >= 0:
            for value in both:
                for top, bottom in operands_of_divisions(value):
                    assert evaluate(top, point) >= 0
                    assert evaluate(bottom, point) > 0


@given(expressions, expressions)
def test_what_is_proved_holds(value: Size, limit: Size) -> None:
    never_negative, below = at_least_zero(value, BOUNDS), less(value, limit, BOUNDS)
    highest = upper(value, BOUNDS)
    assert not symbols_of(highest) & set(BOUNDS)
    for point in points():
        number = evaluate(value, point)
        assert number <= evaluate(highest, point)
        assert number >= 0 or not never_negative
        assert 0 <= number < evaluate(limit, point) or not below


def test_what_must_be_provable() -> None:
    bounds = {"i": N, "j": 6}
    assert at_least_zero(N - 1, {}) and not at_least_zero(N - 2, {})
    assert at_least_zero(N - 1 - I, bounds) and not at_least_zero(N - 2 - I, bounds)
    assert at_least_zero(5 - J, bounds) and not at_least_zero(4 - J, bounds)
    assert at_least_zero(I * 6 - J + 5, bounds)
    assert less(I * 6 + J, N * 6, bounds) and not less(I * 6 + J + 1, N * 6, bounds)
    assert less(I * M, N * M, bounds)
    assert not less(I - 1, N, bounds)  # below zero at the first element
    assert less(remainder(I, 4, bounds), 4, bounds)
    assert less(0, 1, {}) and not less(1, 1, {}) and not less(-1, 1, {})


def test_an_unbounded_variable_counts_as_a_size() -> None:
    """A size is at least 1, a loop variable at least 0: bounds must name every loop variable."""
    assert at_least_zero(I - 1, {})
    assert not at_least_zero(I - 1, {"i": 3})


@given(expressions, sums(variables), st.sampled_from([1, 2, N, N * 2, N + 2]))
def test_substitution(value: Size, first: Size, second: Size) -> None:
    replaced = substitute(value, {"i": first, "m": second}, BOUNDS)
    for point in points():
        new = point | {"i": evaluate(first, point), "m": evaluate(second, point)}
        if all(evaluate(top, new) >= 0 for top, _ in operands_of_divisions(value)):
            assert evaluate(replaced, point) == evaluate(value, new)


def test_substitution_is_simultaneous() -> None:
    assert substitute(I * 3 + J, {"i": J, "j": I}) == J * 3 + I
    assert substitute(quotient(I, N, {}), {"i": N * 5}) == 5


def test_an_unsimplified_substitution_splits_no_quotient() -> None:
    """Of (i - 1) // 2 the least is not known: i may be 0."""
    halved = quotient(I + J - 1, 2, BOUNDS)
    moved = substitute_unsimplified(halved, {"j": M * 2})
    assert moved == quotient(I + M * 2 - 1, 2, {"i": 3, "m": 2})
    for i, m in ((0, 1), (1, 0), (2, 1)):
        assert evaluate(moved, {"i": i, "m": m}) == (i + 2 * m - 1) // 2


@given(expressions, st.sampled_from(["i", "j", "n"]))
def test_coefficient(value: Size, name: str) -> None:
    factor = coefficient(value, name)
    if factor is None:
        return
    assert name not in symbols_of(factor)
    rest = value - factor * symbol(name)
    assert name not in symbols_of(rest)


def test_coefficient_of_what_is_not_affine() -> None:
    assert coefficient(I * I, "i") is None
    assert coefficient(quotient(I, 4, {}), "i") is None
    assert coefficient(I + remainder(I, 4, {}), "i") is None
    assert coefficient(I * N * 2 + I + J, "i") == N * 2 + 1
    assert coefficient(J, "i") == 0


@given(polynomials, divisors)
def test_divides(value: Size, denominator: Size) -> None:
    if divides(denominator, value):
        for point in points():
            assert evaluate(value, point) % evaluate(denominator, point) == 0


def test_what_divides() -> None:
    assert divides(4, N * 8 + 12)
    assert not divides(4, N * 8 + 2)
    assert not divides(4, N * 6)
    assert divides(N, N * I + N)
    assert divides(1, N + 1)


def test_evaluate_needs_every_symbol() -> None:
    with pytest.raises(KeyError, match="m"):
        evaluate(N + M, {"n": 1})
    assert symbols_of(quotient(I + N, M, {}) * J) == {"i", "n", "m", "j"}


def test_a_size_that_is_nothing_but_a_name() -> None:
    s, t = symbol("s"), symbol("t")
    others = (0, 1, s * 2, s + 1, s + t, s * t, s * -1, quotient(s, 3, {}), remainder(s, t, {}))
    assert name_of(s) == "s" and [name_of(size) for size in others] == [None] * len(others)
