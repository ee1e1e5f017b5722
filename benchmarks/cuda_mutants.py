"""Faults put into CUDA kernels, and the share that the emulation on the CPU finds.

    python benchmarks/cuda_mutants.py --count 60

The kernels are a few of each way in which threads share their work (`mutation/emulated.py`), the
faults those of `mutants.py`, with barriers that are left out. A mutant is run in several orders of
its threads and for several layouts; it is caught where the emulation reports a fault, where two
orders differ, or where a result is too far from float64. What is the same program does not count.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]

from benchmarks.mutation.built import NO_BUILD, SAME_CODE  # noqa: E402
from benchmarks.mutation.choice import Mutant, in_order  # noqa: E402
from benchmarks.mutation.emulated import Kernel, code_of, judge, kernels, regions  # noqa: E402
from benchmarks.mutation.report import (  # noqa: E402
    brief,
    checks_table,
    counted,
    emulated_table,
    survivors,
)
from benchmarks.record import run_of_today  # noqa: E402

from opweld.delivery import write_whole  # noqa: E402

RESULT = HERE / "results" / "mutants-cuda-emulated.json"


def main(
    count: Annotated[int, typer.Option(help="How many mutants are to be run.")] = 60,
    seed: Annotated[int, typer.Option(help="Which mutants, and in what order.")] = 1,
    out: Annotated[Path, typer.Option(help="The account.")] = RESULT,
) -> None:
    """Runs mutants of CUDA kernels under emulation and writes the account."""
    sound = kernels()
    for name, kernel in sound.items():
        found = judge(kernel, kernel.text)
        if found["outcome"] != "survived":
            raise SystemExit(f"{name}: the kernel fails itself: {found}")
    codes = {name: code_of(kernel.text) for name, kernel in sound.items()}
    account: dict[str, Any] = {
        "suite": "mutants",
        **run_of_today(on_cpu=True),
        "target": "cuda, emulated",
        "seed": seed,
        "mutants": [],
    }
    for mutant in in_order({n: kernel.text for n, kernel in sound.items()}, seed, regions):
        if len(counted(account["mutants"])) >= count:
            break
        case = tried(mutant, sound[mutant.model], codes[mutant.model])
        account["mutants"].append(case)
        write_whole(out, json.dumps(account, indent=1) + "\n")
        print(brief(case), flush=True)
    print("\n".join([*emulated_table(account), "", *checks_table(account), *survivors(account)]))


def tried(mutant: Mutant, kernel: Kernel, code: bytes | None) -> dict[str, Any]:
    """What the account says of a mutant."""
    text = mutant.applied(kernel.text)
    start = time.perf_counter()
    new = code_of(text)
    if new is None or new == code:
        found = {"outcome": NO_BUILD if new is None else SAME_CODE}
    else:
        found = judge(kernel, text)
    seconds = round(time.perf_counter() - start, 1)
    return {**mutant.described(kernel.text), **found, "seconds": seconds}


if __name__ == "__main__":
    typer.run(main)
