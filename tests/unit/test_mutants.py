"""Rules of mutation change a text as they say; which mutants are made is repeated by the seed."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.mutation.choice import Mutant, in_order, mutants_of
from benchmarks.mutation.explained import EXPLAINED, explanation
from benchmarks.mutation.report import counted, score_table, survivors
from benchmarks.mutation.rules import CLASSES, RULES
from benchmarks.mutation.text import PARTS, regions

ROOT = Path(__file__).resolve().parents[2]
# Of each rule: the class, a line, and what it becomes; None where the rule has to leave it alone.
SAMPLES = (
    ("element after", "y = x[i * 7 + r];", "y = x[i * 7 + r + 1];"),
    ("element after", "float lane[kLanes];", None),
    ("element before", "y = x[r];", "y = x[r - 1];"),
    ("index of another access", "y = x[r];\nz = w[i];", "y = x[i];\nz = w[i];"),
    ("index of another access", "y = x[r];\n}\nz = w[i];", None),
    (
        "strides exchanged",
        "x[i * x_stride0 + r * x_stride1]",
        "x[i * x_stride1 + r * x_stride0]",
    ),
    ("strides exchanged", "int64_t x_stride0, int64_t x_stride1,", None),
    ("pitch of one less", "x[i * 96 + r]", "x[i * 95 + r]"),
    ("extent of one less", "const int64_t i = at % 25;", "const int64_t i = at % 24;"),
    ("place one further", "const int64_t r = block + lane;", "const int64_t r = block + lane + 1;"),
    ("loop to and with its end", "for (int i = 0; i < n; ++i)", "for (int i = 0; i <= n; ++i)"),
    ("loop ends one early", "for (int i = 0; i < n; ++i)", "for (int i = 0; i < n - 1; ++i)"),
    ("loop begins one late", "for (int i = 0; i < n; ++i)", "for (int i = 0 + 1; i < n; ++i)"),
    ("tail left out", "if (block < stop) {", "if (false) {"),
    (
        "end one early",
        "const int64_t last = a < b ? a : b;",
        "const int64_t last = (a < b ? a : b) - 1;",
    ),
    ("first row left out", "parallel_for(0, num_rows, 1,", "parallel_for(1, num_rows, 1,"),
    ("last row left out", "parallel_for(0, num_rows, 1,", "parallel_for(0, num_rows - 1, 1,"),
    ("literal of 3 % more", "y = x * 0.5f;", "y = x * 0.515f;"),
    ("literal of 3 % more", "y = x + 0.0f;", None),
    ("literal of a hundred thousandth more", "y = x * 2.0f;", "y = x * 2.00002f;"),
    ("literal's sign", "y = x * 0.5f;", "y = x * (-0.5f);"),
    ("one for zero", "y = x > 0.0f;", "y = x > 1.0f;"),
    ("zero for one", "return T(1) / x;", "return T(0) / x;"),
    ("infinity's sign", "y = -op::kInfinity<float>;", "y = op::kInfinity<float>;"),
    ("infinity's sign", "y = op::kInfinity<float>;", "y = -op::kInfinity<float>;"),
    ("integer of one more", "y = x + int32_t(2);", "y = x + int32_t(3);"),
    ("totals in float", "total[k] += lane[k];", "total[k] = float(total[k] + lane[k]);"),
    (
        "one long sum in float",
        "constexpr int64_t kSpan = 16;",
        "constexpr int64_t kSpan = int64_t(1) << 40;",
    ),
    ("carry in float", "sum_carry[k] = sum_lane;", "sum_carry[k] = float(sum_lane);"),
    ("double in float", "const double d = x / n;", "const double d = float(x / n);"),
    (
        "value in half precision",
        "const float y = x * x;",
        "const float y = float(_Float16(x * x));",
    ),
    ("compensation left out", "return sum + (lost + small);", "return sum + (0.0f + small);"),
    (
        "sum's parts in half precision",
        "s = op::Sum::combine(s, value0);",
        "s = op::Sum::combine(s, decltype(value0)(_Float16(value0)));",
    ),
    ("comparison negated", "y = x < 1 ? a : b;", "y = x >= 1 ? a : b;"),
    ("comparison negated", "for (int i = 0; i < n; ++i)", None),
    ("comparison's equality", "y = x > 1 ? a : b;", "y = x >= 1 ? a : b;"),
    ("branches exchanged", "y = x ? a : op::b;", "y = x ? op::b : a;"),
    ("NaN not looked for", "return b != b ? b : larger;", "return false ? b : larger;"),
    ("or for and", "if (a && b)", "if (a || b)"),
    ("and for or", "if (a || b)", "if (a && b)"),
    ("condition left out", "if (i < 45) {", "if (true) {"),
    ("mask left out", "y = inside_1 ? x : 0;", "y = true ? x : 0;"),
    ("- for +", "y = a + b;", "y = a - b;"),
    ("- for +", "y = x[a + b];", None),
    ("- for +", "const int64_t r = a + b;", None),
    ("+ for -", "y = a - b;", "y = a + b;"),
    ("/ for *", "y = a * b;", "y = a / b;"),
    ("* for /", "y = a / b;", "y = a * b;"),
    ("sign lost", "y = -x;", "y = x;"),
    ("function left out", "y = op::exp(x);", "y = x;"),
    ("overwritten, not added to", "total[k] += x;", "total[k] = x;"),
    ("operands exchanged", "y = a - b;", "y = b - a;"),
    ("layout taken for granted", "if (x.is_contiguous() &&", "if (true &&"),
    ("operand not checked", '  host::expect("k: x", x, {s0,\n 7});', "  ;\n"),
    ("no exception", "if (!holds) throw error;", "if (false) throw error;"),
    ("empty call not looked for", "if (num_rows == 0) return;", ";"),
    ("stride of another axis", "x.stride(0), x.stride(1)", "x.stride(1), x.stride(1)"),
    ("stride of another axis", "y.stride(0), x.stride(1)", None),
    (
        "operands exchanged",
        "x.const_data_ptr(), y.const_data_ptr()",
        "y.const_data_ptr(), x.const_data_ptr()",
    ),
    ("clause of the guard left out", "            and x.dim() == 2", "            "),
    ("guard left out", "if not self._opweld_fits(x):", "if False:"),
    ("arguments exchanged", "_kernels.k1_mul(x, self.w)", "_kernels.k1_mul(self.w, x)"),
    ("a result's gradient left out", "_several((0,), (0, 1))", "_several((0,), ())"),
    ("barrier left out", "__syncthreads();", ";"),
    ("thread of half a warp", "threadIdx.x % 32", "threadIdx.x % 16"),
    ("gradient: - for +", "g = a + b", "g = a - b"),
    ("gradient: + for -", "g = a - b", "g = a + b"),
    ("gradient: / for *", "g = a * b", "g = a / b"),
    ("gradient: * for /", "g = a / b", "g = a * b"),
    ("gradient: literal of 3 % more", "g = a * 0.5", "g = a * 0.515"),
    ("gradient: comparison negated", "g = a > b", "g = a <= b"),
    (
        "gradient: saved tensors exchanged",
        "k_backward(_need, grad, x, y)",
        "k_backward(_need, grad, y, x)",
    ),
)
EMITTED = '''"""ModelNew for a model."""
_ORIGINAL = r\'\'\'
    def forward(self, x):
        return x + 0.25
\'\'\'

_CPU = r"""// k1: x + 1.0f
OPWELD_FN float k1_pass0(float x) { return x + 0.5f; }  // 0.5f
"""

_MAIN = r"""
  if (num_rows == 0) return;
"""


def _k1_backward(_need, grad, x):
    return grad * 0.5


class ModelNew(_Original):
    def forward(self, x):
        if not self._opweld_fits(x):
            return super().forward(x)


# What kernels use: op, as far as they do.
_DEVICE = r"""
#define OPWELD_ONE 1.0f
OPWELD_FN float one() { return 1.0f; }
"""
'''


def changed(name: str, sample: str) -> list[str]:
    """What the rules of a name make of a sample, at its first match."""
    made = []
    for rule in RULES:
        match = re.search(rule.pattern, sample, re.MULTILINE)
        new = rule.replaced(match) if rule.name == name and match else None
        if new is not None and match:
            made.append(sample[: match.start()] + new + sample[match.end() :])
    return made


@pytest.mark.parametrize(("name", "sample", "wanted"), SAMPLES)
def test_a_rule_changes_a_text_as_it_says(name: str, sample: str, wanted: str | None) -> None:
    assert wanted in changed(name, sample) if wanted is not None else not changed(name, sample)


def test_every_rule_has_a_sample_a_class_and_parts() -> None:
    assert {rule.name for rule in RULES} == {name for name, _, _ in SAMPLES}
    assert {rule.kind for rule in RULES} == set(CLASSES)
    assert {part for rule in RULES for part in rule.parts} == set(PARTS)


def test_only_code_of_the_named_part_is_changed() -> None:
    assert Counter(region.part for region in regions(EMITTED)) == dict.fromkeys(PARTS, 1)
    found = [m for m in mutants_of("m", EMITTED) if "literal of 3" in m.rule]
    lines = [(m.part, EMITTED.split("\n")[m.line - 1].strip()) for m in found]
    assert sorted(lines) == [
        ("backward", "return grad * 0.5"),
        ("kernels", "OPWELD_FN float k1_pass0(float x) { return x + 0.5f; }  // 0.5f"),
        ("library", "OPWELD_FN float one() { return 1.0f; }"),
    ]


def test_a_mutant_differs_only_in_its_own_lines() -> None:
    for mutant in mutants_of("m", EMITTED):
        old, new = EMITTED.split("\n"), mutant.applied(EMITTED).split("\n")
        assert len(old) == len(new), "line numbers are part of what is compiled"
        assert [n for n in range(len(old)) if old[n] != new[n]] == [mutant.line - 1]
        assert mutant.difference(EMITTED)[0] == f"- {old[mutant.line - 1].strip()}"


def test_a_seed_repeats_the_order_and_another_one_changes_it() -> None:
    texts = {"one": EMITTED, "two": EMITTED.replace("0.5", "0.75")}
    first = list(in_order(texts, 1))
    assert first == list(in_order(dict(reversed(texts.items())), 1))
    assert first != list(in_order(texts, 2))
    every = {m for model, text in texts.items() for m in mutants_of(model, text)}
    assert set(first) == every and len(first) == len(every)


def test_the_first_mutants_are_of_all_classes_and_models() -> None:
    texts = dict.fromkeys(("one", "two"), EMITTED)
    order = list(in_order(texts, 1))
    kinds = {mutant.kind for mutant in order}
    assert {mutant.kind for mutant in order[: len(kinds)]} == kinds
    assert {mutant.model for mutant in order[: 2 * len(kinds)]} == set(texts)


def case(outcome: str, **more: object) -> dict[str, object]:
    mutant = Mutant("m", "- for +", "operator", "kernels", 1, " + ", " - ", 1)
    return {**mutant.described("a + b"), "outcome": outcome, **more}


def test_the_score_counts_mutants_that_are_other_programs() -> None:
    cases = [case("same code"), case("does not compile"), case("survived", caught_in=None)]
    cases += [case("caught", caught_in="call", by="own inputs")] * 2
    account = {"mutants": [*cases, case("caught", caught_in="full", by="inner size of 3")]}
    assert len(counted(account["mutants"])) == 4
    assert score_table(account)[-1] == "| all | 4 | 2 | 1 | 0 | 1 | 75.0% | 75.0% |"
    assert survivors(account) == ["m:1: operator: - for +", "    - a + b", "    + a - b"]


def test_explained_mutants_are_survivors_of_the_records() -> None:
    """What no longer survives, or lies elsewhere, needs no explanation, or a new one."""
    records = (ROOT / "benchmarks" / "results").glob("mutants-*.json")
    cases = [case for path in records for case in json.loads(path.read_text())["mutants"]]
    survived = {case["name"] for case in cases if case["outcome"] == "survived"}
    assert {name for row in EXPLAINED for name in row.names} <= survived


def test_a_rule_that_explains_exists_and_what_is_caught_needs_no_explanation() -> None:
    names = {rule.name for rule in RULES}
    for row in EXPLAINED:
        assert set(row.rules) <= names and row.reason and re.compile(row.line)
    assert explanation(case("caught", caught_in="call")) is None
