"""Expressions in the texts that are emitted."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opweld.ir.syntax import bare, infix


def in_parentheses(text: str) -> str:
    return f"({text})" if " " in text or text.startswith("-") else text


Both = tuple[str, str]
"""An expression by `infix`, and with all parentheses."""
_OPERATORS = ["+", "-", "*", "/", "%", "<", "&"]


def infix_of(parts: tuple[Both, str, Both]) -> Both:
    (left, whole_left), operator, (right, whole_right) = parts
    ours = infix(in_parentheses(left), operator, in_parentheses(right))
    return ours, f"({whole_left}) {operator} ({whole_right})"


def grouped(each: Both) -> Both:
    ours, whole = each
    return in_parentheses(ours), f"({whole})"


def larger(inner: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(_OPERATORS), inner).map(infix_of),
        inner.map(lambda each: (f"f({bare(in_parentheses(each[0]))}, 2)", f"f({each[1]}, 2)")),
        inner.map(lambda each: tuple(f"-{text}" for text in grouped(each))),
        inner.map(
            lambda each: (f"{in_parentheses(each[0])} if x else y", f"({each[1]}) if x else y")
        ),
    )


@given(st.recursive(st.sampled_from(["a", "b", "1.5"]).map(lambda n: (n, n)), larger))
def test_parentheses_that_are_left_out_change_nothing(both: Both) -> None:
    ours, whole = both
    assert ast.dump(ast.parse(ours)) == ast.dump(ast.parse(whole))


@pytest.mark.parametrize(
    ("left", "operator", "right", "text"),
    [
        ("(a * b)", "+", "(c * d)", "a * b + c * d"),
        ("(a - b)", "+", "(c - d)", "a - b + (c - d)"),
        ("(a + b)", "*", "(c / d)", "(a + b) * (c / d)"),
        ("(f(a + b) / c)", "*", "d", "f(a + b) / c * d"),
        ("(f(a))", "+", "(b)", "f(a) + b"),
        ("(-a)", "*", "(-b)", "(-a) * (-b)"),
        ("(a ? b : c)", "+", "(a % b)", "(a ? b : c) + (a % b)"),
        ("(a * b)", "<", "(c + d)", "(a * b) < (c + d)"),
    ],
)
def test_arithmetic_has_no_needless_parentheses(
    left: str, operator: str, right: str, text: str
) -> None:
    assert infix(left, operator, right) == text


@pytest.mark.parametrize("text", ["(a)(b)", "(a) + (b)", "f(a)", "a", "", "(", "()()"])
def test_what_stands_in_no_parentheses_of_its_own_keeps_them(text: str) -> None:
    assert bare(text) == text


def test_outer_parentheses_are_taken_away() -> None:
    assert bare("(f(a) + (b))") == "f(a) + (b)"
