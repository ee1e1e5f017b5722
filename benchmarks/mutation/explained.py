"""Survivors that the judge is right to let pass, each with its reason.

A row names rules, with a pattern of the line as it was, or single mutants by their names, which
have the position in the emitted file. So what survives in a file that has changed is open until it
is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Explained:
    """The survivors of some rules whose old line has the pattern, and those of some names."""

    reason: str
    rules: tuple[str, ...] = ()
    line: str = ""
    names: tuple[str, ...] = ()


EXPLAINED = (
    Explained(
        "a second check: the guard of ModelNew asks the same before",
        ("operand not checked", "no exception"),
        r"host::expect|!holds",
    ),
    Explained(
        "there is nothing to do: the loop behind it is empty in any case",
        ("empty call not looked for", "comparison's equality"),
        r"num_rows == 0|if \(block < stop\)",
        names=("cuda_scan_odd: loop to and with its end at 4578",),
    ),
    Explained(
        "less exact, by no more than the grades allow",
        (
            "compensation left out",
            "totals in float",
            "one long sum in float",
            "literal of a hundred thousandth more",
            "value in half precision",
        ),
        r"\(lost \+|total\[k\]|kSpan = 1024|\bq = ",
        names=(
            "cuda_batch_norm: literal of a hundred thousandth more at 38498",
            "cuda_scan_across: value in half precision at 819",
        ),
    ),
    Explained(
        "it is for operands that are not dense, and the file makes this one itself",
        names=(
            "group_norm: layout taken for granted at 15203",
            "group_norm: stride of another axis at 15848",
            "group_norm: pitch of one less at 12821",
            "group_norm: extent of one less at 12915",
            "attention: first row left out at 9521",
            "attention: comparison negated at 7060",
            "attention: sum's parts in half precision at 8115",
            "attention: loop begins one late at 7869",
            "pool: index of another access at 14417",
        ),
    ),
    Explained(
        "the result is laid out as the operand is, whose layout is asked as well",
        names=("scan: layout taken for granted at 9153",),
    ),
    Explained(
        "it chooses among ways to run (index widths, packets, blocks) that all compute the same",
        names=(
            "cuda_scan_odd: comparison negated at 20296",
            "cuda_places: comparison's equality at 27583",
            "cuda_batch_norm: + for - at 27805",
            "cuda_columns: / for * at 26971",
            "cuda_sum_in_pieces: comparison negated at 30845",
            "cuda_sum_in_pieces: element after at 30832",
            "cuda_columns: comparison negated at 6331",
            "cuda_columns: + for - at 32619",
        ),
    ),
    Explained(
        "some rows are computed twice, with the same values",
        names=("scan: comparison negated at 6792",),
    ),
    Explained(
        "results with other strides and the same values are noted, and no failure",
        names=("linear_tail: layout taken for granted at 15982",),
    ),
    Explained(
        "no value that comes there makes a difference: an exact conversion, a bound that is "
        "implied, a logarithm of numbers from 1 on, two formulas that agree, a NaN that comes "
        "another way, a sum in another order, a reference of integers",
        names=(
            "loss: sum's parts in half precision at 13092",
            "loss: sign lost at 41780",
            "loss: literal of a hundred thousandth more at 41402",
            "views: literal's sign at 5074",
            "views: comparison's equality at 5388",
            "layer_norm: infinity's sign at 16531",
            "layer_norm: comparison's equality at 17509",
            "places: gradient: - for + at 13912",
            "places: gradient: / for * at 13907",
            "places: gradient: comparison negated at 14081",
            "places: one long sum in float at 3407",
            "batch_norm: double in float at 3919",
            "batch_norm: element after at 4738",
            "row_reductions: one for zero at 2232",
            "row_reductions: NaN not looked for at 16943",
            "row_reductions: comparison negated at 22051",
            "pool: value in half precision at 24925",
            "whole_reduction: comparison's equality at 24357",
            "masked_softmax: NaN not looked for at 15488",
            "masked_softmax: comparison negated at 17230",
        ),
    ),
)


def explanation(case: Mapping[str, Any]) -> str | None:
    """Why a mutant of an account that survived does; None for all others, and for holes."""
    if case["outcome"] != "survived":
        return None
    text = "\n".join(line for line in case["difference"] if line.startswith("- "))
    read = [row.reason for row in EXPLAINED if case["name"] in row.names]
    alike = [
        row.reason for row in EXPLAINED if case["rule"] in row.rules and re.search(row.line, text)
    ]
    return next(iter((*read, *alike)), None)
