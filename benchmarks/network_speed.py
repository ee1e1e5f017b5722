"""Times whole networks beside eager and torch.compile, and the host's part of small ones.

    python benchmarks/network_speed.py                       everything, for what this machine has
    python benchmarks/network_speed.py --only 'ViT|MLP'      rows whose names have one of these
    python benchmarks/network_speed.py --kinds host          the small networks alone
    python benchmarks/network_speed.py --kinds convolutions  convolutions with what is behind them
    python benchmarks/network_speed.py --kinds networks      networks of convolutions, by batch
    python benchmarks/network_speed.py --kinds steps         their steps of training, of --training
    python benchmarks/network_speed.py --target cpu --only MLP --out /tmp

Each network is a process of its own. All are prepared side by side: emitted, built, compiled by
torch.compile, called. Then they are timed one after the other, while nothing else runs. What is not
ready in `--prepare-s` is recorded as that. Emitted files are checked in the same process: their
error against float64, how many of some equal calls differ, whether their kernels ran.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.networks import (  # noqa: E402
    CONVOLUTION_ROWS,
    HOST_ROWS,
    NETWORK_ROWS,
    ROWS,
    STEP_ROWS,
    Row,
    chosen,
)
from benchmarks.record import keep, run_of_today, slug  # noqa: E402

from opweld.process.child import Finished, run_child  # noqa: E402

SUITE = "network-speed"
KINDS = {
    "host": HOST_ROWS,
    "speed": ROWS,
    "convolutions": CONVOLUTION_ROWS,
    "networks": NETWORK_ROWS,
    "steps": STEP_ROWS,
}
# Compilers of one network at once: many networks are prepared at the same time.
JOBS = {"MAX_JOBS": "4", "TORCHINDUCTOR_COMPILE_THREADS": "2", "OMP_NUM_THREADS": "2"}
TIMING_S = 60.0


def main(
    only: Annotated[str, typer.Option(help="Parts of names, between bars.")] = "",
    kinds: Annotated[
        str, typer.Option(help="Of host, speed, convolutions, networks, steps.")
    ] = "host,speed",
    target: Annotated[str, typer.Option(help="What the kernels are for.")] = "auto",
    prepare_s: Annotated[float, typer.Option(help="Seconds until all must be ready.")] = 330.0,
    workers: Annotated[int, typer.Option(help="Networks that are prepared at once.")] = 12,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    """Writes <out>/network-speed-<device>.json, where it replaces the rows that it ran."""
    start = time.perf_counter()
    if target == "auto":
        target = "cuda" if torch.cuda.is_available() else "cpu"
    run = run_of_today(target == "cpu")
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{SUITE}-{slug(run['device'])}.json"
    names = [row.name for rows in KINDS.values() for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        networks = [
            Network(kind, row, target, Path(folder, f"{kind}{index}"), start + prepare_s)
            for kind in kinds.split(",")
            for index, row in enumerate(chosen(KINDS[kind], only))
        ]
        for result in timed(networks, workers):
            print(f"{time.perf_counter() - start:.0f} s, {line_of(result)}", flush=True)
            keep(path, {"suite": SUITE, **run}, run, result, names)
    print(f"written to {path}, {time.perf_counter() - start:.0f} s")


@dataclass
class Network:
    """The process of one network: prepared by a deadline, timed once it is let go."""

    kind: str
    row: Row
    target: str
    folder: Path
    deadline: float
    stage: str = "start"
    let_go: float | None = None
    settled: threading.Event = field(default_factory=threading.Event)

    def run(self, slots: threading.Semaphore) -> Finished:
        """Until the process ends; it holds a slot while it is prepared."""
        slots.acquire()
        self.folder.mkdir()

        def settle() -> None:
            if not self.settled.is_set():
                self.settled.set()
                slots.release()

        def note(event: str) -> None:
            self.stage = event.strip()
            if self.stage == "ready":
                settle()

        try:
            return run_child(
                [sys.executable, str(HERE / "network_child.py"), *self.arguments()],
                time_limit_s=max(self.deadline - time.perf_counter(), 0) + 3600,
                environ={**os.environ, **JOBS, **self.caches()},
                on_event=note,
                stop=self.overdue,
            )
        finally:
            settle()

    def arguments(self) -> list[str]:
        return [self.kind, self.row.name, self.target, str(self.folder)]

    def caches(self) -> dict[str, str]:
        return {
            "TORCH_EXTENSIONS_DIR": str(self.folder / "extensions"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
        }

    def overdue(self) -> bool:
        if self.stage != "ready":
            return time.perf_counter() > self.deadline
        return self.let_go is not None and time.perf_counter() > self.let_go + TIMING_S

    def go(self) -> None:
        self.let_go = time.perf_counter()
        if self.folder.exists():
            (self.folder / "go").touch()

    def result(self, finished: Finished) -> dict[str, Any]:
        head = {"name": self.row.name, "kind": self.kind}
        answer = self.folder / "answer.json"
        if answer.exists():
            return {**head, **json.loads(answer.read_text("utf-8"))}
        if finished.timed_out:
            return {**head, "problem": f"not done in time: at {self.stage!r} when it was ended"}
        return {**head, "problem": f"failed at {self.stage!r}: {finished.last_line[:300]}"}


def timed(networks: list[Network], workers: int) -> Iterator[dict[str, Any]]:
    """The results one by one, after all networks were prepared."""
    slots = threading.Semaphore(workers)
    with ThreadPoolExecutor(len(networks)) as pool:
        futures = [pool.submit(network.run, slots) for network in networks]
        for network in networks:
            network.settled.wait()
        for network, future in zip(networks, futures, strict=True):
            network.go()
            yield network.result(future.result())


def line_of(result: dict[str, Any]) -> str:
    if "problem" in result:
        return f"{result['name']}: {result['problem']}"
    kinds = ("ms", "ms_recorded", "ms_backward", "no_grad_us", "grad_us")
    figures = "; ".join(
        f"{kind} " + ", ".join(f"{way} {value:.4g}" for way, value in result[kind].items())
        for kind in kinds
        if result.get(kind)
    )
    error = result["error"]
    return (
        f"{result['name']}: {figures}; grade {error['grade']}, {result['kernels_ran']} kernels ran,"
        f" {result['unequal_runs']} of {result['runs']} equal calls differ,"
        f" {result['eager_unequal_runs']} of eager's"
    )


if __name__ == "__main__":
    typer.run(main)
