"""Random models down the whole line: those of fixed seeds, and a few that no run has seen."""

from __future__ import annotations

import itertools
import secrets
from pathlib import Path

import pytest
from tests.fuzz.campaign import Judging
from tests.fuzz.generate import generate

FIXED = (1001,)
NUM_FRESH = 4


def failures(seeds: tuple[int, ...], folder: Path) -> list[str]:
    """One line for each model that does not pass; `python benchmarks/fuzz.py` makes it small."""
    sources = {f"model_{seed}": generate(seed).source() for seed in seeds}
    outcomes = Judging(folder, autocast_every=10).outcomes(sources).values()
    assert any(outcome.kernels for outcome in outcomes)
    return [f"{o.name}: {o.kind}: {o.detail}" for o in outcomes if o.is_fault]


def test_fixed_seeds(tmp_path: Path) -> None:
    assert failures(FIXED, tmp_path) == []


@pytest.mark.slow
def test_fresh_seeds(tmp_path: Path) -> None:
    first = secrets.randbelow(2**31)
    candidates = (seed for seed in itertools.count(first) if not overflows_easily(seed))
    seeds = tuple(itertools.islice(candidates, NUM_FRESH))
    print(f"python benchmarks/fuzz.py --first {first} --models {seeds[-1] - first + 1}")
    assert failures(seeds, tmp_path) == []


def overflows_easily(seed: int) -> bool:
    source = generate(seed).source()
    return "torch.float16" in source or ".half()" in source


@pytest.mark.parametrize("seed", FIXED)
def test_a_seed_names_a_model(seed: int) -> None:
    assert generate(seed).source() == generate(seed).source()
