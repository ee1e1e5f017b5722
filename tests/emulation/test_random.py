"""Random graphs through plan, lowering and text, run as CUDA under emulation and as C++.

Several graphs share one text, so that one compilation serves them all.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.kernels import executor, with_gaps
from tests.plan_meaning import Execute, ExecuteRows, run_plan
from tests.random_graphs import (
    assert_close_to,
    batches_of,
    build,
    double,
    exact_and_errors,
    feeds_of,
)
from tests.reduction_kernels import rows_executor

from opweld.ir.graph import Graph
from opweld.ir.kernels.reduction import Lowered
from opweld.ir.plan import Plan
from opweld.ir.text import to_text
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan, rows
from opweld.render import render
from opweld.target import CPU, SM_90A

GRAPHS_A_TEXT = 12
TEXTS = 100 if os.environ.get("OPWELD_FUZZ") == "long" else 4
# A failing text is not shrunk: every try would compile. tests/unit/lower shrinks the same graphs.
together = settings(max_examples=TEXTS, phases=(Phase.explicit, Phase.generate))


# Seeds, not graphs: what hypothesis draws itself is small, and a text has room for larger ones.
seeds = st.lists(st.integers(0, 2**32), min_size=GRAPHS_A_TEXT, max_size=GRAPHS_A_TEXT, unique=True)


def built(seed: int, **options: Any) -> Graph:
    return build(random.Random(seed).choice, **options)


@pytest.mark.parametrize("language", ["cuda", "c++"])
@together
@given(seeds)
def test_random_graphs(language: str, many: list[int]) -> None:
    assert_all_mean([built(seed, calls=True) for seed in many], language)


@pytest.mark.parametrize("language", ["cuda", "c++"])
@together
@given(seeds)
def test_random_views_of_integers(language: str, many: list[int]) -> None:
    """Any wrong address is a wrong result."""
    integers = (DType.I64, DType.I32, DType.U8)
    assert_all_mean([built(seed, only_views=True, dtypes=integers) for seed in many], language)


@pytest.mark.parametrize("language", ["cuda", "c++"])
@settings(together, max_examples=max(2, TEXTS // 2))
@given(seeds, st.booleans())
def test_random_reductions(language: str, many: list[int], in_pieces: bool) -> None:
    with mock.patch.object(rows, "LONG_ROW", 1 if in_pieces else rows.LONG_ROW):
        graphs = [built(seed, reductions=True, steps=range(2, 16)) for seed in many]
        assert_all_mean(graphs, language)


def assert_all_mean(many: Sequence[Graph], language: str) -> None:
    target = SM_90A if language == "cuda" else CPU
    plans = [make_plan(g, target, suffix=f"_g{number}") for number, g in enumerate(many)]
    kernels = [lower(plan) for plan in plans]
    text = render("random", tuple(k for each in kernels for k in each), language).text
    packets, single = executors(text, language), executors(text, language, aligned=False)
    wide = executors(text, language, wide_indices=True)
    for number, (plan, fused) in enumerate(zip(plans, kernels, strict=True)):
        sizes = batches_of(plan.graph)
        size = sizes[number % len(sizes)]
        assert_means(plan, fused, size, {"contiguous": packets, "strided": packets})
        if language == "cuda":
            assert_means(plan, fused, size, {"contiguous": single})
            assert_means(plan, fused, size, {"contiguous": wide, "strided": wide})


def executors(text: str, language: str, **options: bool) -> tuple[Execute, ExecuteRows]:
    return executor(text, language, **options), rows_executor(text, language, **options)


def assert_means(
    plan: Plan,
    fused: tuple[Lowered, ...],
    size: int,
    executes: dict[str, tuple[Execute, ExecuteRows]],
) -> None:
    sizes = {"s0": size}
    feeds = feeds_of(plan.graph, sizes)
    wanted = exact_and_errors(plan.graph, feeds, sizes)
    for variant, (execute, execute_rows) in executes.items():
        gaps = {name: with_gaps(array) for name, array in feeds.items()}
        given_feeds = feeds if variant == "contiguous" else gaps
        got = run_plan(
            plan,
            fused,
            given_feeds,
            sizes,
            variant=variant,
            calls=double,
            execute=execute,
            execute_rows=execute_rows,
        )
        assert_close_to(got, wanted, f"{variant}, batch {size}, of\n{to_text(plan)}")
