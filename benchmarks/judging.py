"""What judging costs and whom it catches: the catalogue of cheats, and one check of a GELU.

    python benchmarks/judging.py cpu
    python benchmarks/judging.py cuda --no-catalogue

The catalogue is `tests/cheats`: every file of `cheats` has to fail, every one of `honest` to pass.
The seconds are those of `opweld.check` without and with a warm server, verdict and times included;
the memory is what the judge's processes hold at most beyond what they held when they began, as a
multiple of the output.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Any

import torch
import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.cheats.catalogue import CLASSES, Entry, entries  # noqa: E402
from tests.cheats.test_cheats import judged  # noqa: E402

from opweld import Settings, check  # noqa: E402
from opweld.judge import Server  # noqa: E402

GELU = ROOT / "examples" / "gelu.py"
REWRITE = """
import math
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3)))
"""
LOOK_S = 0.02
LEVELS = DEFAULT, THOROUGH = "default", "thorough"


def main(
    device: Annotated[str, typer.Argument(help="cpu or cuda")],
    catalogue: Annotated[bool, typer.Option(help="Judge all cheats and honest files.")] = True,
    workers: Annotated[int, typer.Option(help="Files of the catalogue judged side by side.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    """Writes <out>/judging-<device>.json."""
    account = {
        "date": date.today().isoformat(),
        "command": shlex.join(["python", "benchmarks/judging.py", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "gelu": gelu(device),
        "catalogue": {name: catch(device, workers, name) for name in LEVELS if catalogue},
    }
    path = out / f"judging-{device}.json"
    path.write_text(json.dumps(account, indent=1) + "\n")
    short = {name: brief(found) for name, found in account["catalogue"].items()}
    print(json.dumps({**account, "catalogue": short}, indent=1))


def gelu(device: str) -> dict[str, Any]:
    """Seconds of a check of 8192x8192, and of one of the same files by a warm server."""
    new = Path(os.environ.get("TMPDIR", "/tmp"), f"gelu_rewrite_{os.getpid()}.py")
    new.write_text(REWRITE)
    settings = Settings(device=device, baselines=("eager",), seed=1)
    with Server() as server:
        cold = seconds(lambda: check(GELU, new, settings, server=server))
        peak = [0]
        with watched(device, peak):
            warm = seconds(lambda: check(GELU, new, settings, server=server))
        verdict = seconds(
            lambda: check(GELU, new, Settings(device=device, measure=False, seed=1), server=server)
        )
    new.unlink()
    output = 8192 * 8192 * 4
    return {
        "cold_s": cold,
        "warm_s": warm,
        "warm_without_times_s": verdict,
        "peak_bytes": peak[0],
        "peak_over_output": peak[0] / output,
    }


def seconds(action: Any) -> float:
    start = time.perf_counter()
    assert action().verdict.passed
    return time.perf_counter() - start


@contextmanager
def watched(device: str, peak: list[int]) -> Iterator[None]:
    """Keeps in `peak` the most memory of the device that was taken meanwhile."""
    start, ended = taken(device), threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            peak[0] = max(peak[0], taken(device) - start)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def taken(device: str) -> int:
    """Bytes in use on the whole device, or by the whole machine."""
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        return total - free
    with open("/proc/meminfo", encoding="ascii") as lines:
        fields = dict(line.split(":", 1) for line in lines)
    total_kb, free_kb = (int(fields[k].split()[0]) for k in ("MemTotal", "MemAvailable"))
    return 1024 * (total_kb - free_kb)


@dataclass(frozen=True)
class Found:
    """How one file of the catalogue was judged."""

    name: str
    kind: str | None
    right: bool
    reason: str
    seconds: float


def catch(device: str, workers: int, level: str) -> dict[str, list[dict[str, Any]]]:
    """Every file of the catalogue for this device, judged by as many warm servers.

    As a user has it judged, the first check that fails ends the judgement.
    """
    changed = {"thorough": level == THOROUGH, "stop_at_first": True}
    with ExitStack() as stack:
        free: SimpleQueue[Server] = SimpleQueue()
        for _ in range(workers):
            free.put(stack.enter_context(Server()))

        def found(folder: str, entry: Entry) -> dict[str, Any]:
            server = free.get()
            try:
                return vars(judge(entry, server, device, folder, changed))
            finally:
                free.put(server)

        pool = stack.enter_context(ThreadPoolExecutor(workers))
        return {
            folder: list(pool.map(partial(found, folder), chosen(folder, device)))
            for folder in ("cheats", "honest")
        }


def chosen(folder: str, device: str) -> list[Entry]:
    return [entry for entry in entries(folder) if (entry.device or "cpu") == device]


def judge(
    entry: Entry, server: Server, device: str, folder: str, changed: Mapping[str, Any]
) -> Found:
    start = time.perf_counter()
    verdict = judged(entry, server, device, changed).verdict
    right = verdict.passed == (folder == "honest")
    return Found(entry.name, entry.kind, right, verdict.reason, time.perf_counter() - start)


def brief(catalogue: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """How many of how many were judged right, and which were not."""
    return {
        folder: {
            "right": sum(found["right"] for found in all_found),
            "of": len(all_found),
            "seconds": sum(found["seconds"] for found in all_found),
            "wrong": [found["name"] for found in all_found if not found["right"]],
            "classes": by_class(all_found),
        }
        for folder, all_found in catalogue.items()
    }


def by_class(all_found: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Of each class of cheats, how many of how many were caught; nothing for honest files."""
    of = Counter(found["kind"] for found in all_found)
    right = Counter(found["kind"] for found in all_found if found["right"])
    return {kind: {"caught": right[kind], "of": of[kind]} for kind in CLASSES if of[kind]}


if __name__ == "__main__":
    typer.run(main)
