"""Every cheat fails by the check that is there for it, and the judge goes on."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cheats.catalogue import CLASSES, HERE, ONE_THREAD, Entry, entries, parameters
from tests.nvcc import compile_cuda, needs_nvcc

from opweld.judge import Judgement, Server, Settings, check

# Small, so that the file that eats memory needs little of it; torch on CUDA takes several GiB.
MEMORY_LIMIT_BYTES = 3 * 2**30


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One warm server for all: each cheat has to leave it able to judge the next."""
    with Server(ONE_THREAD) as warm:
        yield warm


def judged(
    entry: Entry, server: Server, device: str, changed: Mapping[str, Any] | None = None
) -> Judgement:
    """The file against its model; `changed` are fields of Settings in place of those here."""
    settings = Settings(
        device=device,
        mode=entry.mode,
        stop_at_first=False,
        measure=entry.measure,
        baselines=("eager",),
        budget_s=0.2,
        time_limit_s=entry.time_limit_s,
        memory_limit_bytes=MEMORY_LIMIT_BYTES if device == "cpu" else None,
    )
    settings = replace(settings, **(changed or {}))
    return check(entry.model, entry.path, settings, server=server)


def require_caught(entry: Entry, judgement: Judgement) -> None:
    reason = judgement.verdict.reason
    assert not judgement.verdict.passed and judgement.exit_code == 1, reason
    assert judgement.timing is None, "what is wrong has no time"
    failing = {failed.name for failed in judgement.verdict.failures}
    for names in entry.caught_by:
        assert failing & set(names), f"none of {names} failed, but {sorted(failing)}: {reason}"
    assert entry.matches(reason), reason


@pytest.mark.parametrize("entry", parameters("cheats", "cpu"))
def test_the_cheat_is_caught(entry: Entry, server: Server) -> None:
    require_caught(entry, judged(entry, server, "cpu"))


@pytest.mark.parametrize("entry", parameters("cheats", "cuda"))
def test_the_cheat_on_a_gpu_is_caught(entry: Entry, server: Server) -> None:
    require_caught(entry, judged(entry, server, "cuda"))


def test_a_result_is_never_unpickled(server: Server) -> None:
    mark = Path(tempfile.gettempdir(), "opweld-cheat-was-unpickled")
    shutil.rmtree(mark, ignore_errors=True)
    (entry,) = (e for e in entries("cheats") if e.name == "code_in_its_output")
    judged(entry, server, "cpu")
    assert not mark.exists()


def gainless(name: str) -> Entry:
    (entry,) = (each for each in entries("gainless") if each.name == name)
    return entry


def test_a_cache_gains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is right, so that it may pass; but what it kept is of no use in the timed runs.

    It notes of each call whether it had the result already. The timed ones are the last.
    """
    log, entry = tmp_path / "calls", gainless("cached_by_value")
    monkeypatch.setenv("CHEAT_LOG", str(log))
    with Server({**os.environ, **ONE_THREAD}, writable=(tmp_path,)) as server:
        judgement = judged(entry, server, "cpu")
    assert judgement.verdict.passed, judgement.verdict.reason
    assert judgement.timing is not None, judgement.timing_error
    calls = log.read_text().split()
    timed = calls[-judgement.timing.opweld_ms.n :]
    assert "hit" in calls[: -len(timed)], "it does keep results"
    assert set(timed) == {"miss"}


def test_a_clock_inside_that_runs_slow_gains_nothing(server: Server) -> None:
    """What is published is the referee's own clock; the other one is a detail."""
    shares = []
    for _ in range(3):  # beside other work the one that is outside may be short of a moment
        judgement = judged(gainless("clock_scaled"), server, "cpu")
        assert judgement.verdict.passed, judgement.verdict.reason
        timing = judgement.timing
        assert timing is not None and timing.inside_ms is not None, judgement.timing_error
        shares.append(timing.inside_ms.median / timing.opweld_ms.median)
        if shares[-1] < 0.95:
            break
    assert shares[-1] < 0.95, shares


def test_every_file_stands_against_a_model_and_says_how_it_is_caught() -> None:
    for entry in entries("cheats"):
        assert entry.model.exists(), entry.name
        assert entry.caught_by or entry.said, entry.name
        assert importlib.util.spec_from_file_location(entry.name, entry.path)
    used = {entry.model for folder in ("cheats", "honest") for entry in entries(folder)}
    assert used == set((HERE / "models").glob("*.py"))


def test_every_cheat_is_of_a_known_class_and_none_is_of_one_or_two() -> None:
    counts = Counter(entry.kind for entry in entries("cheats"))
    assert set(counts) == set(CLASSES)
    assert min(counts.values()) >= 3, counts


@needs_nvcc
@pytest.mark.parametrize("folder", ["cheats", "honest"])
def test_their_cuda_compiles(folder: str) -> None:
    """Where there is no GPU, too; texts that include torch are left out."""
    for entry in entries(folder):
        if entry.cuda and "torch" not in entry.cuda:
            compile_cuda(entry.cuda)
