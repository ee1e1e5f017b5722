"""Random models down the whole line: captured, fused, built, judged; faults made small.

    python benchmarks/fuzz.py --models 1000
    python benchmarks/fuzz.py --models 1000 --target cuda --workers 12

A seed names a model. The account has the operations covered, the faults with their seeds and, in a
folder beside it, a smallest model file for each fault that the same command finds again.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]

from benchmarks.record import run_of_today  # noqa: E402
from tests.fuzz.campaign import Judging  # noqa: E402
from tests.fuzz.generate import generate, is_of_rows  # noqa: E402
from tests.fuzz.outcome import BESIDE_NAN, BY_CHANCE, Outcome  # noqa: E402
from tests.fuzz.program import Program  # noqa: E402
from tests.fuzz.shrink import shrink  # noqa: E402

from opweld.delivery import write_whole  # noqa: E402


def main(
    models: Annotated[int, typer.Option(help="How many models to try.")] = 1000,
    first: Annotated[int, typer.Option(help="The first seed; the others follow it.")] = 0,
    target: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    workers: Annotated[int, typer.Option(help="Batches at the same time.")] = 1,
    batch: Annotated[int, typer.Option(help="Models judged by one process.")] = 20,
    seconds: Annotated[float, typer.Option(help="Begin no batch after so long.")] = math.inf,
    out: Annotated[Path | None, typer.Option(help="Where the account goes.")] = None,
    rows: Annotated[bool, typer.Option(help="Programs of rows alone.")] = False,
    small: Annotated[bool, typer.Option(help="Make failing models small.")] = True,
) -> None:
    """Judges random models and writes results/fuzz-<target>.json; exit code 1 where one fails."""
    out = out or HERE / "results" / f"fuzz-{target}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    fitting = (seed for seed in itertools.count(first) if is_of_rows(seed) or not rows)
    seeds = itertools.islice(fitting, models)
    outcomes: dict[int, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="opweld-fuzz-") as folder:
        work = Path(folder)
        for some in judged(_batches(seeds, batch), target, workers, work, start + seconds):
            outcomes.update(some)
            # What was seen is kept, whatever ends the run.
            account = account_of(outcomes, head(first, target, time.monotonic() - start))
            write_whole(out, json.dumps(account, indent=1) + "\n")
        faults = [outcome for outcome in outcomes.values() if outcome.is_fault]
        sources = shrunk(faults, target, work) if small else {}
    for name, source in sources.items():
        place = out.parent / f"{out.stem}-faults" / f"{name}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(source)
    print(f"{_counted(outcome.kind for outcome in outcomes.values())}; written to {out}")
    raise typer.Exit(1 if faults else 0)


def judged(
    batches: Iterable[list[int]], target: str, workers: int, work: Path, deadline: float
) -> Iterator[dict[int, Outcome]]:
    """The outcomes of each batch that begins before `deadline` (monotonic seconds), by seed.

    Batches run side by side, each in a process of its own, and come as they end.
    """
    with ThreadPoolExecutor(workers) as pool:
        judge = partial(_judge_batch, target, work, deadline)
        for done in as_completed([pool.submit(judge, seeds) for seeds in batches]):
            for seed, outcome in done.result().items():
                if outcome.kind not in ("passed", "refused"):
                    print(f"{seed}: {outcome.kind}: {outcome.detail[:300]}", flush=True)
            yield done.result()


def account_of(outcomes: Mapping[int, Outcome], head: dict[str, Any]) -> dict[str, Any]:
    """What the file keeps of a run."""
    outcomes = dict(sorted(outcomes.items()))
    faults = [outcome for outcome in outcomes.values() if outcome.is_fault]
    spared = [outcome for outcome in outcomes.values() if outcome.kind in (BY_CHANCE, BESIDE_NAN)]
    lists = {"faults": listed(faults), "spared": listed(spared)}
    return {**head, "models": len(outcomes), **summary(outcomes), **lists}


def _batches(seeds: Iterable[int], size: int) -> Iterator[list[int]]:
    remaining = iter(seeds)
    while batch := list(itertools.islice(remaining, size)):
        yield batch


def _judge_batch(target: str, work: Path, deadline: float, seeds: list[int]) -> dict[int, Outcome]:
    if time.monotonic() > deadline:
        return {}
    sources = {f"model_{seed}": generate(seed).source() for seed in seeds}
    outcomes = Judging(work / f"batch_{seeds[0]}", target).outcomes(sources)
    return {seed: outcomes[f"model_{seed}"] for seed in seeds}


def shrunk(faults: list[Outcome], target: str, work: Path) -> dict[str, str]:
    """A smallest model file for each way of failing: of one kind, the first two seeds."""
    seen: Counter[str] = Counter()
    made = {}
    for fault in faults:
        seen[fault.kind] += 1
        if seen[fault.kind] > 2:
            continue
        seed = int(fault.name.rpartition("_")[2])
        program = smallest(generate(seed), fault.kind, target, work / f"small_{seed}")
        head = f"Seed {seed}, made small. {fault.kind}."
        made[f"seed_{seed}"] = program.source(head)
        print(f"--- seed {seed}: {fault.kind}\n{made[f'seed_{seed}']}", flush=True)
    return made


def smallest(program: Program, kind: str, target: str, work: Path) -> Program:
    rounds = itertools.count()

    def judge(sources: Any) -> dict[str, Outcome]:
        folder = work / f"round_{next(rounds)}"
        return Judging(folder, target, autocast_every=0).outcomes(sources)

    return shrink(program, kind, judge)


def head(first: int, target: str, spent: float) -> dict[str, Any]:
    return {
        **run_of_today(),
        "target": target,
        "first_seed": first,
        "seconds": round(spent, 1),
    }


@cache
def operations(seed: int) -> tuple[str, ...]:
    """Those that the model of a seed is written with."""
    return tuple(generate(seed).ops)


def summary(outcomes: dict[int, Outcome]) -> dict[str, Any]:
    """How models ended, what was covered, where the time went."""
    found = outcomes.values()
    written = Counter(op for seed in outcomes for op in operations(seed))
    stages = Counter[str]()
    for outcome in found:
        stages.update(outcome.seconds)
    return {
        "outcomes": _counted(outcome.kind for outcome in found),
        "grades": _counted(outcome.grade for outcome in found if outcome.grade),
        "kernels": sum(outcome.kernels for outcome in found),
        "models_with_kernels": sum(outcome.kernels > 0 for outcome in found),
        "models_that_doing_nothing_would_pass": sum(outcome.weak for outcome in found),
        "seconds_by_stage": {stage: round(spent, 1) for stage, spent in sorted(stages.items())},
        "written": dict(sorted(written.items())),
        "fused": _counted(op for outcome in found for op in outcome.ops),
        "left_to_pytorch": _counted(op for outcome in found for op in outcome.left),
        "refused": _counted(outcome.detail for outcome in found if outcome.kind == "refused"),
    }


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def listed(faults: list[Outcome]) -> list[dict[str, str]]:
    return [{"model": f.name, "kind": f.kind, "detail": f.detail[:500]} for f in faults]


if __name__ == "__main__":
    typer.run(main)
