"""Whether the judge refuses what is right: every honest file of `tests/cheats`, judged on the CPU.

    python benchmarks/honest.py
    python benchmarks/honest.py --sample 20 --seeds 5 --out honest-seeds-cpu.json

Those written by hand lie in `tests/cheats/honest`, those written by `tests/cheats/generated.py` are
small models in many styles. Each is judged for the example call, and those that do all that the
original does for the full scope as well. A refusal is a fault of the judge or of the file.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import run_of_today  # noqa: E402
from tests.cheats.catalogue import ONE_THREAD, entries  # noqa: E402
from tests.cheats.generated import generated, pairs  # noqa: E402

from opweld import Settings, check  # noqa: E402
from opweld.delivery import write_whole  # noqa: E402
from opweld.judge import Server  # noqa: E402


@dataclass(frozen=True)
class Task:
    """One judgement: the files, for which scope, and by which seed."""

    name: str
    model: Path
    new: Path
    scope: str
    seed: int


def main(
    workers: Annotated[int, typer.Option(help="Files judged side by side.")] = 1,
    seed: Annotated[int, typer.Option(help="The first seed of the inputs and weights.")] = 1,
    seeds: Annotated[int, typer.Option(help="How many seeds each file is judged with.")] = 1,
    sample: Annotated[int | None, typer.Option(help="Only so many files, drawn.")] = None,
    only: Annotated[str, typer.Option(help="Only files whose names match this expression.")] = "",
    out: Annotated[str, typer.Option(help="The file in results.")] = "honest-cpu.json",
) -> None:
    """Writes results/honest-cpu.json; exit code 1 where a file is refused.

    With --only, judgements of other files that the account has already stay in it.
    """
    run, path = run_of_today(on_cpu=True), HERE / "results" / out
    before = json.loads(path.read_text())["files"] if only and path.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        all_tasks = list(_tasks(Path(folder), range(seed, seed + seeds), sample))
        there = {(task.name, task.scope, task.seed) for task in all_tasks}
        files = {_key(found): found for found in before if _key(found) in there}
        tasks = [task for task in all_tasks if re.search(only, task.name)]
        for found in _judged(tasks, workers):
            print(found["name"], found["scope"], found["grade"], found["reason"] or "", flush=True)
            files[_key(found)] = {**found, "date": run["date"], "command": run["command"]}
            account = {**run, **_summary(files.values()), "files": list(files.values())}
            write_whole(path, json.dumps(account, indent=1) + "\n")
    refused = [found for found in files.values() if not found["passed"]]
    print(f"refused wrongly: {len(refused)} of {len(files)}")
    raise typer.Exit(1 if refused else 0)


def _key(found: dict[str, Any]) -> tuple[str, str, int]:
    return found["name"], found["scope"], found["seed"]


def _summary(files: Collection[dict[str, Any]]) -> dict[str, Any]:
    """How many judgements there are, of how many files, and which were refused."""
    return {
        "num_judgements": len(files),
        "num_files": len({found["name"] for found in files}),
        "refused_wrongly": sorted({found["name"] for found in files if not found["passed"]}),
    }


def _tasks(folder: Path, seeds: range, sample: int | None) -> Iterator[Task]:
    files = [
        (entry.name, entry.model, entry.path, False)
        for entry in entries("honest")
        if entry.device != "cuda"
    ]
    for each in (generated(number) for number in range(len(pairs()))):
        files.append((each.name, *each.write(folder), each.whole))
    if sample is not None:
        files = random.Random(seeds.start).sample(files, min(sample, len(files)))
    for name, model, new, whole in files:
        for scope in ("call", "full")[: 1 + whole]:
            for seed in seeds:
                yield Task(name, model, new, scope, seed)


def _judged(tasks: list[Task], workers: int) -> Iterator[dict[str, Any]]:
    """How each was judged, in their order, by as many warm servers."""
    with ExitStack() as stack:
        free: SimpleQueue[Server] = SimpleQueue()
        for _ in range(workers):
            free.put(stack.enter_context(Server(ONE_THREAD)))

        def judged(task: Task) -> dict[str, Any]:
            server = free.get()
            try:
                return _judge(task, server)
            finally:
                free.put(server)

        pool = stack.enter_context(ThreadPoolExecutor(workers))
        yield from pool.map(judged, tasks)


def _judge(task: Task, server: Server) -> dict[str, Any]:
    settings = Settings(device="cpu", measure=False, seed=task.seed, scope=task.scope)
    start = time.perf_counter()
    verdict = check(task.model, task.new, settings, server=server).verdict
    return {
        "name": task.name,
        "passed": verdict.passed,
        "grade": verdict.grade,
        "seconds": round(time.perf_counter() - start, 2),
        "scope": task.scope,
        "seed": task.seed,
        "inference_only": verdict.inference_only,
        "reason": None if verdict.passed else verdict.reason,
    }


if __name__ == "__main__":
    typer.run(main)
