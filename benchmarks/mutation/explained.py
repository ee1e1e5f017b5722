"""Survivors that the judge is right to let pass, each with its reason.

A row names rules, with a pattern of the line as it was, or single mutants by their model and line;
these were read one by one. Where an emitted file changes, its lines do, and what survives is open
until it is read again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Explained:
    """The survivors of some rules whose old line has the pattern, and those at some places."""

    reason: str
    rules: tuple[str, ...] = ()
    line: str = ""
    places: tuple[str, ...] = ()


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
        ("cuda_scan_odd:122",),
    ),
    Explained(
        "less exact, by no more than the grades allow",
        (
            *("compensation left out", "totals in float", "one long sum in float"),
            *("literal of a hundred thousandth more", "value in half precision"),
        ),
        r"\(lost \+|total\[k\]|kSpan = 1024|\bq = ",
        ("cuda_batch_norm:907", "cuda_scan_across:29"),
    ),
    Explained(
        "an index out of range: the original raises an exception, and such calls are not judged",
        ("no exception", "mask left out"),
        r"all_|outside \|=",
    ),
    Explained(
        "it is for operands that are not dense, and the file makes this one itself",
        places=(
            *("group_norm:381", "group_norm:392", "group_norm:327", "group_norm:328"),
            *("attention:253", "attention:188", "attention:213", "attention:209", "pool:351"),
        ),
    ),
    Explained(
        "the result is laid out as the operand is, whose layout is asked as well",
        places=("scan:248",),
    ),
    Explained(
        "it chooses among ways to run (index widths, packets, blocks) that all compute the same",
        places=(
            *("cuda_scan_odd:523", "cuda_places:635", "cuda_batch_norm:653", "cuda_columns:621"),
            *("cuda_sum_in_pieces:719", "cuda_columns:162", "cuda_columns:740"),
        ),
    ),
    Explained(
        "a check of operands that no call fails",
        places=("cuda_columns:613", "cuda_scan_odd:66"),
    ),
    Explained(
        "a barrier before memory that a block writes once in these calls, or that is not reached",
        places=("cuda_softmax:518", "cuda_columns:501", "cuda_scan_across:203"),
    ),
    Explained(
        "some rows are computed twice, with the same values",
        places=("scan:183",),
    ),
    Explained(
        "results with other strides and the same values are noted, and no failure",
        places=("linear_tail:415",),
    ),
    Explained(
        "no value that comes there makes a difference: an exact conversion, a bound that is "
        "implied, a logarithm of numbers from 1 on, two formulas that agree, a NaN that comes "
        "another way, a sum in another order, a reference of integers",
        places=(
            *("loss:338", "loss:1051", "loss:1045", "views:120", "views:124", "layer_norm:445"),
            *("layer_norm:475", "places:350", "places:353", "places:101", "batch_norm:111"),
            *("batch_norm:131", "row_reductions:68", "row_reductions:455", "row_reductions:625"),
            *("pool:645", "whole_reduction:614", "masked_softmax:408", "masked_softmax:470"),
        ),
    ),
)


def explanation(case: Mapping[str, Any]) -> str | None:
    """Why a mutant of an account that survived does; None for all others, and for holes."""
    if case["outcome"] != "survived":
        return None
    text = "\n".join(line for line in case["difference"] if line.startswith("- "))
    place = f"{case['model']}:{case['line']}"
    read = [row.reason for row in EXPLAINED if place in row.places]
    alike = [
        row.reason for row in EXPLAINED if case["rule"] in row.rules and re.search(row.line, text)
    ]
    return next(iter((*read, *alike)), None)
