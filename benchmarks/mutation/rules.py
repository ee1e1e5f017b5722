"""How a mutant differs from the emitted file: a table of rules, each one slip of a programmer.

A rule replaces one match of its pattern, in the parts that it names. A replacement that is a
function gives the new text, or None where the match is no place for the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.mutation.places import (
    another_axis,
    another_index,
    compared,
    exchanged_strides,
    in_value,
    scaled,
)

CLASSES = (
    *("index", "bound", "constant", "accumulate", "mask", "operator", "host", "python"),
    "barrier",
)
DEVICE = ("kernels", "library")
Replacement = str | Callable[[re.Match[str]], str | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`kind` is one of CLASSES, and what the report counts by."""

    name: str
    kind: str
    parts: tuple[str, ...]
    pattern: str
    new: Replacement

    def replaced(self, match: re.Match[str]) -> str | None:
        """The text for that of the match, on as many lines; None where it would be the same."""
        new = match.expand(self.new) if isinstance(self.new, str) else self.new(match)
        if new is None or new == match[0]:
            return None
        return new + "\n" * (match[0].count("\n") - new.count("\n"))


# An access to an array, and no declaration of one.
ACCESS = r"(?<=\w)\[(?!k[A-Z]|\d+\])([^\[\]&]+)\]"
LOOP = r"for \([^;\n]*; \w+"
# The two values of a conditional expression.
BRANCHES = r"\? ((?:[^?:;,]|::)+?) : ((?:[^?:;,]|::)+?)(?=[;)])"

NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
NEIGHBOUR = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
RULES = (
    Rule("element after", "index", DEVICE, ACCESS, r"[\1 + 1]"),
    Rule("element before", "index", DEVICE, ACCESS, r"[\1 - 1]"),
    Rule("index of another access", "index", ("kernels",), ACCESS, another_index),
    Rule(
        "strides exchanged",
        "index",
        ("kernels",),
        r"\b(\w+_stride)(\d)\b([^;]*?)\b\1(\d)\b",
        exchanged_strides,
    ),
    Rule("pitch of one less", "index", ("kernels",), r"(?<= \* )(\d\d+)\b", lambda m: less(m)),
    Rule("extent of one less", "index", ("kernels",), r"(?<= % )(\d\d*)\b", lambda m: less(m)),
    Rule(
        "place one further",
        "index",
        ("kernels",),
        r"(const int64_t \w+ = \w+ \+ \w+);",
        r"\1 + 1;",
    ),
    Rule("loop to and with its end", "bound", DEVICE, rf"({LOOP}) < ", r"\1 <= "),
    Rule("loop ends one early", "bound", DEVICE, rf"({LOOP} < [^;]+);", r"\1 - 1;"),
    Rule("loop begins one late", "bound", DEVICE, r"(for \(\w+ \w+ = \w+);", r"\1 + 1;"),
    Rule("tail left out", "bound", ("kernels",), r"if \(block < stop\)", "if (false)"),
    Rule(
        "end one early",
        "bound",
        ("kernels",),
        r"(const \w+ (?:count|last|stop|to|rest) =) ([^;]+);",
        r"\1 (\2) - 1;",
    ),
    Rule("first row left out", "bound", ("host",), r"parallel_for\(0,", "parallel_for(1,"),
    Rule(
        "last row left out",
        "bound",
        ("host",),
        r"(parallel_for\(\d, \w+)",
        r"\1 - 1",
    ),
    Rule(
        "literal of 3 % more",
        "constant",
        DEVICE,
        r"(?<![\w.])(\d+\.\d+(?:e[+-]?\d+)?)(?=f?\b)",
        lambda m: scaled(m, 1.03),
    ),
    Rule(
        "literal of a hundred thousandth more",
        "constant",
        DEVICE,
        r"(?<![\w.])(\d+\.\d+(?:e[+-]?\d+)?)(?=f?\b)",
        lambda m: scaled(m, 1.00001),
    ),
    Rule(
        "literal's sign",
        "constant",
        DEVICE,
        r"(?<![\w.])(\d+\.\d+(?:e[+-]?\d+)?f?)\b",
        r"(-\1)",
    ),
    Rule("one for zero", "constant", DEVICE, r"\b0\.0f?\b|\bT\(0\)", lambda m: zero_to_one(m)),
    Rule("zero for one", "constant", DEVICE, r"\b1\.0f?\b|\bT\(1\)", lambda m: one_to_zero(m)),
    Rule("infinity's sign", "constant", DEVICE, r"-((?:op::)?kInfinity<)", r"\1"),
    Rule("infinity's sign", "constant", DEVICE, r"(?<!-)(?<!::)((?:op::)?kInfinity<)", r"-\1"),
    Rule(
        "integer of one more",
        "constant",
        ("kernels",),
        r"\bint(32|64)_t\((\d+)\)",
        lambda m: f"int{m[1]}_t({int(m[2]) + 1})",
    ),
    Rule(
        "totals in float",
        "accumulate",
        ("library",),
        r"total\[k\] \+= lane\[k\];",
        "total[k] = float(total[k] + lane[k]);",
    ),
    Rule(
        "one long sum in float",
        "accumulate",
        ("kernels",),
        r"(constexpr int64_t kSpan =) \d+;",
        r"\1 int64_t(1) << 40;",
    ),
    Rule(
        "carry in float",
        "accumulate",
        ("kernels",),
        r"(\w+_carry(?:\[\w+\])? =) (\w+_lane\w*(?:\[\w+\])?);",
        r"\1 float(\2);",
    ),
    Rule(
        "double in float",
        "accumulate",
        ("kernels",),
        r"(const double \w+ =) ([^;]+);",
        r"\1 float(\2);",
    ),
    Rule(
        "value in half precision",
        "accumulate",
        ("kernels",),
        r"(const float \w+ =) ([^;\n\[]+);",
        r"\1 float(_Float16(\2));",
    ),
    Rule(
        "value in half precision",
        "accumulate",
        ("library",),
        r"((?:float|T) \w+ =) ([^;\n\[]+);",
        r"\1 float(_Float16(\2));",
    ),
    Rule("compensation left out", "accumulate", ("library",), r"\(lost \+ ", "(0.0f + "),
    Rule(
        "sum's parts in half precision",
        "accumulate",
        ("kernels",),
        r"(::combine\([^;]*), (\w+)\);",
        r"\1, decltype(\2)(_Float16(\2)));",
    ),
    Rule(
        "comparison negated",
        "mask",
        DEVICE,
        r" (==|!=|<=|>=|<|>) ",
        lambda m: compared(m, NEGATED),
    ),
    Rule(
        "comparison's equality",
        "mask",
        DEVICE,
        r" (<=|>=|<|>) ",
        lambda m: compared(m, NEIGHBOUR),
    ),
    Rule("branches exchanged", "mask", DEVICE, BRANCHES, r"? \2 : \1"),
    Rule("NaN not looked for", "mask", DEVICE, r"\b(\w+) != \1\b", "false"),
    Rule("or for and", "mask", DEVICE, r" && ", " || "),
    Rule("and for or", "mask", DEVICE, r" \|\| ", " && "),
    Rule("condition left out", "mask", ("kernels",), r"if \(([^;{}]+)\) \{", "if (true) {"),
    Rule("mask left out", "mask", DEVICE, r"\binside\w* \?", "true ?"),
    Rule("- for +", "operator", DEVICE, r" \+ ", lambda m: in_value(m, " - ")),
    Rule("+ for -", "operator", DEVICE, r" - ", lambda m: in_value(m, " + ")),
    Rule("/ for *", "operator", DEVICE, r" \* ", lambda m: in_value(m, " / ")),
    Rule("* for /", "operator", DEVICE, r" / ", lambda m: in_value(m, " * ")),
    Rule("sign lost", "operator", DEVICE, r"(?<=[=(?:,] )-(?=[a-z(])|(?<=\()-(?=[a-z])", ""),
    Rule(
        "function left out",
        "operator",
        ("kernels",),
        r"op::(?:abs|relu|tanh|sigmoid|exp|log|sqrt|rsqrt|erf|\w*gelu)\((\w+)\)",
        r"\1",
    ),
    Rule("overwritten, not added to", "operator", ("library",), r"\] \+= ", "] = "),
    Rule(
        "operands exchanged",
        "operator",
        ("kernels",),
        r"= (\w+) ([-/]) (\w+);",
        lambda m: in_value(m, f"= {m[3]} {m[2]} {m[1]};"),
    ),
    Rule("layout taken for granted", "host", ("host",), r"\b\w+\.is_contiguous\(\)", "true"),
    Rule(
        "operand not checked",
        "host",
        ("host",),
        r"(?<![\w ])  host::expect\w*\([^;]*\);",
        "  ;",
    ),
    Rule("no exception", "host", ("host",), r"if \(!\w+\) throw", "if (false) throw"),
    Rule("empty call not looked for", "host", ("host",), r"if \(num_rows == 0\) return;", ";"),
    Rule("stride of another axis", "host", ("host",), r"\b(\w+)\.stride\((\d)\)", another_axis),
    Rule(
        "operands exchanged",
        "host",
        ("host",),
        r"\b(\w+)(\.const_data_ptr\(\),\s+)(\w+)(\.const_data_ptr\(\))",
        r"\3\2\1\4",
    ),
    Rule("clause of the guard left out", "python", ("forward",), r"(?<=            )and .*", ""),
    Rule(
        "guard left out",
        "python",
        ("forward",),
        r"if not self\._opweld_fits\w*\([^\n]*\):",
        "if False:",
    ),
    Rule(
        "arguments exchanged",
        "python",
        ("forward",),
        r"(_kernels\.k\w+\()([\w.]+), ([\w.]+)(?=[,)])",
        r"\1\3, \2",
    ),
    Rule(
        "a result's gradient left out",
        "python",
        ("forward",),
        r"(_several\((?:\([\d, ]*\), )*)\(\d[\d, ]*\)",
        r"\1()",
    ),
    Rule(
        "literal of 3 % more",
        "python",
        ("forward",),
        r"(?<![\w.])(0\.\d+)",
        lambda m: scaled(m, 1.03),
    ),
    Rule("barrier left out", "barrier", DEVICE, r"__sync(?:threads|warp)\([^;()]*\);", ";"),
    Rule(
        "thread of half a warp",
        "index",
        DEVICE,
        r"(?<=threadIdx\.x % )32\b",
        "16",
    ),
    Rule("gradient: - for +", "python", ("backward",), r" \+ ", " - "),
    Rule("gradient: + for -", "python", ("backward",), r" - ", " + "),
    Rule("gradient: / for *", "python", ("backward",), r" \* ", " / "),
    Rule("gradient: * for /", "python", ("backward",), r" / ", " * "),
    Rule(
        "gradient: literal of 3 % more",
        "python",
        ("backward",),
        r"(?<![\w.])(\d+\.\d+(?:e[+-]?\d+)?)(?=\b)",
        lambda m: scaled(m, 1.03),
    ),
    Rule(
        "gradient: saved tensors exchanged",
        "python",
        ("backward",),
        r"(_backward\(_need(?:, grad\w*)+, )([a-z]\w*), ([a-z]\w*)",
        r"\1\3, \2",
    ),
    Rule(
        "gradient: comparison negated",
        "python",
        ("backward",),
        r" (==|!=|<=|>=|<|>) ",
        lambda m: compared(m, NEGATED),
    ),
)


def less(match: re.Match[str]) -> str | None:
    """A number of one less; a loop over one lane or element keeps its own."""
    return str(int(match[1]) - 1) if int(match[1]) > 1 else None


def zero_to_one(match: re.Match[str]) -> str:
    return match[0].replace("0", "1", 1)


def one_to_zero(match: re.Match[str]) -> str:
    return match[0].replace("1", "0", 1)
