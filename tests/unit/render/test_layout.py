from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opweld.render.layout import COLUMNS, call, comment, folded, head, indented, listed

names = st.lists(st.from_regex(r"[a-z]{1,30}", fullmatch=True), min_size=1, max_size=20)


def without_layout(text: str) -> str:
    return re.sub(r"\s+", "", text)


def assert_within_columns(text: str) -> None:
    assert all(len(line) <= COLUMNS for line in text.split("\n"))


@given(names, st.integers(0, 8))
def test_lists_keep_their_items(items: list[str], indent: int) -> None:
    text = listed(items, indent, ");")
    assert_within_columns(text)
    assert without_layout(text) == f"{','.join(items)});"
    assert all(line.startswith(" " * indent) for line in text.split("\n"))


@given(names, st.sampled_from([0, 2, 4]))
def test_heads_and_calls_keep_their_parameters(items: list[str], indent: int) -> None:
    for text in (head("void f", items, " {"), call("f<kLanes>", items, indent)):
        assert_within_columns(text)
        assert f"({','.join(items)})" in without_layout(text)


def test_what_fits_stays_on_one_line() -> None:
    assert head("void f", ["int a", "int b"], " {") == "void f(int a, int b) {"
    assert call("f", ["a", "b"], 4) == "    f(a, b);"
    assert folded("  const float a = b + c;") == "  const float a = b + c;"


@given(names, st.sampled_from([" + ", " - ", " && ", ", "]))
def test_folding_changes_only_white_space(items: list[str], operator: str) -> None:
    line = f"    const float value = {operator.join(items)};"
    text = folded(line)
    assert_within_columns(text)
    assert without_layout(text) == without_layout(line)
    assert all(line.startswith("    ") for line in text.split("\n"))


def test_a_choice_breaks_before_its_branches() -> None:
    address = " + ".join(f"i{k} * stride{k}" for k in range(5))
    text = folded(f"  const float x_1 = inside_1 && inside_2 ? x[{address}] : 0.0f;")
    first, second = text.split("\n")
    assert first == "  const float x_1 = inside_1 && inside_2"
    assert second.startswith("      ? x[i0") and second.endswith(": 0.0f;")


def test_a_call_breaks_behind_its_parenthesis() -> None:
    arguments = [f"op::to_compute(operand_{k}.lane[lane])" for k in range(4)]
    text = folded(f"  const float value0 = element({', '.join(arguments)});")
    assert text.startswith("  const float value0 = element(\n      op::to_compute(operand_0.lane[")
    assert_within_columns(text)


def test_template_arguments_stay_together() -> None:
    name = "a_kernel_with_a_name_that_is_as_long_as_names_of_kernels_become_contiguous_launch"
    text = folded(f"  if (aligned) launch = narrow ? {name}<4, uint32_t> : {name}<4, uint64_t>;")
    assert "<4, uint32_t>" in text and "<4, uint64_t>" in text


def test_template_arguments_part_only_where_nothing_else_fits() -> None:
    line = f"  return launch<{'First' * 12}<1, 2>, {'Second' * 8}>({'argument' * 2});"
    assert [len(part) <= COLUMNS for part in folded(line).split("\n")] == [True, True]


def test_a_long_function_name_is_wrapped() -> None:
    text = call(f"return launch<{'First' * 12}, {'Second' * 8}>", ["x", "y"], 2)
    assert all(len(line) <= COLUMNS for line in text.split("\n"))


def test_comments_and_directives_are_never_folded() -> None:
    for line in ("// " + "word " * 40, "#pragma " + "word " * 40):
        assert folded(line) == line


@given(st.text(max_size=300), st.sampled_from([0, 2]), st.sampled_from([0, 4]))
def test_nothing_in_a_comment_leaves_it(text: str, indent: int, further: int) -> None:
    for line in comment(text, indent, further).split("\n"):
        assert line.startswith(" " * indent + "//")
        assert not line.endswith("\\") and "??/" not in line
        assert "\r" not in line and "\v" not in line and "\f" not in line


@pytest.mark.parametrize("text", ["x = 1  # ends in a backslash \\", "y ??/", "a\\\nb", "\\"])
def test_a_comment_does_not_continue_on_the_next_line(text: str) -> None:
    assert not any(line.endswith(("\\", "??/")) for line in comment(text).split("\n"))


def test_long_comments_are_wrapped() -> None:
    text = comment("word " * 60, 2, 4)
    assert_within_columns(text)
    first, *others = text.split("\n")
    assert first.startswith("  // word") and all(x.startswith("  //     word") for x in others)


def test_indentation_leaves_directives_where_they_are() -> None:
    assert indented(["#pragma unroll", "for (;;) {\n  a;\n}", ""], 2) == [
        "#pragma unroll", "  for (;;) {", "    a;", "  }", "",
    ]  # fmt: skip
