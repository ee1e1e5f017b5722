"""How many candidates an hour the judge gets through, with one warm server a device.

    python benchmarks/candidates.py --num 40              judged and timed, as a search would
    python benchmarks/candidates.py --num 40 --no-measure verdicts only
    python benchmarks/candidates.py --num 40 --plain      files that build nothing, on a GPU too

The candidates are rewrites of one GELU, each with a text of its own so that each builds anew: most
are right, every fifth is wrong, every tenth ends its process. On a GPU they are the hand-written
CUDA file; on the CPU they are plain PyTorch and build nothing. One JSON file keeps the run.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import run_of_today, slug  # noqa: E402

from opweld import Judged, Settings, check_many  # noqa: E402
from opweld.judge.batch import default_devices  # noqa: E402

WRONG_EVERY, DEADLY_EVERY = 5, 10
# 2 MB and 32 MB: what a candidate costs beside the work on its tensors.
CPU_ROWS, GPU_ROWS = 64, 1024
BUDGET_S = 0.5  # for each thing that is timed
PLAIN = """
import math
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x, approximate="tanh")
"""
DEADLY = "import os\nos.abort()\n"


def main(
    num: Annotated[int, typer.Option(help="Candidates to judge.")] = 20,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    measure: Annotated[bool, typer.Option(help="Time those that pass.")] = True,
    builders: Annotated[int, typer.Option(help="Candidates that build ahead.")] = 0,
    plain: Annotated[bool, typer.Option(help="Plain PyTorch: what judging takes alone.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    """Judges `num` candidates and writes <out>/candidates-<device>.json."""
    devices = default_devices(device)
    on_cpu = devices == ("cpu",)
    model = HERE / "models" / "gelu_2048x8192.py" if on_cpu else ROOT / "examples" / "gelu.py"
    batch = CPU_ROWS if on_cpu else GPU_ROWS
    settings = Settings(measure=measure, baselines=("eager",), batch=batch, budget_s=BUDGET_S)
    with tempfile.TemporaryDirectory() as folder:
        files = candidates(Path(folder), num, plain or on_cpu)
        pairs = ((model, path) for path, _ in files)
        expected = [passes for _, passes in files]
        start = time.perf_counter()
        found = list(
            followed(check_many(pairs, settings=settings, devices=devices, builders=builders))
        )
        seconds = time.perf_counter() - start
    account = {
        **run_of_today(on_cpu),
        "devices": list(devices),
        "model": str(model.relative_to(ROOT)),
        "batch": batch,
        "measured": measure,
        "builders": builders,
        "plain": plain or on_cpu,
        **figures(found, expected, seconds),
    }
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"candidates-{slug(account['device'])}.json"
    path.write_text(json.dumps(account, indent=1) + "\n")
    print(f"{account['candidates_an_hour']:.0f} candidates an hour; written to {path}")


def candidates(folder: Path, num: int, plain: bool) -> list[tuple[Path, bool]]:
    """The files, and whether each is to pass."""
    right = PLAIN if plain else (HERE / "by_hand" / "gelu.py").read_text()
    files = []
    for number in range(num):
        text = right.replace("by_hand_gelu", f"candidate_{number}")
        if number % WRONG_EVERY == WRONG_EVERY - 1:
            text = wrong(text)
        if number % DEADLY_EVERY == DEADLY_EVERY - 1:
            text += DEADLY
        path = folder / f"candidate_{number}.py"
        path.write_text(f'"""Candidate {number}."""\n{text}')
        files.append((path, number % WRONG_EVERY != WRONG_EVERY - 1))
    return files


def wrong(text: str) -> str:
    """The same with an error of a thousandth."""
    return re.sub(r"return (extension|torch)\.(.+)", r"return 1.001 * \1.\2", text)


def followed(found: Iterator[Judged]) -> Iterator[Judged]:
    for one in found:
        verdict = one.judgement.verdict.reason if one.judgement else str(one.error)
        print(f"{one.new_path.name} on {one.device}: {one.seconds:.1f} s: {verdict[:100]}")
        yield one


def figures(found: list[Judged], expected: list[bool], seconds: float) -> dict[str, Any]:
    ordered = sorted(found, key=lambda one: one.index)
    each = [one.seconds for one in ordered]
    return {
        "candidates": len(found),
        "seconds": seconds,
        "candidates_an_hour": 3600.0 * len(found) / seconds,
        "seconds_of_the_first": each[0],
        "seconds_median": statistics.median(each),
        "seconds_of_each": each,
        "verdicts": dict(Counter("passed" if one.passed else "failed" for one in ordered)),
        "as_expected": [one.passed for one in ordered] == expected,
    }


if __name__ == "__main__":
    typer.run(main)
