"""Where the time of a network goes on the device: kernels of ModelNew and of the ways beside it.

    python benchmarks/kernel_times.py 'ResNet-50, batch 32|relu, tanh, shift'
    python benchmarks/kernel_times.py 'ResNet-18, batch 32, step'

Names are rows of networks.py, or parts of them, between bars. Microseconds a call by PyTorch's
profiler, means over CALLS (of profiled.py) calls without gradients, or of forward and backward
where a row is a step, each behind a flush of the L2 cache; before them what the host takes until a
call returns, the device idle before, also where Python makes the calls that C++ makes otherwise.
Needs a CUDA device and nvcc.
Printed, to be kept with the device, date and versions that stand at its head.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.network_child import Prepared, Way, host_times, medians, prepare  # noqa: E402
from benchmarks.networks import (  # noqa: E402
    CONVOLUTION_ROWS,
    NETWORK_ROWS,
    ROWS,
    STEP_ROWS,
    chosen,
)
from benchmarks.profiled import flush_for, kernel_times  # noqa: E402
from benchmarks.record import run_of_today  # noqa: E402

from opweld.options import Options  # noqa: E402

COLUMNS = 100


def main(
    only: Annotated[str, typer.Argument(help="Parts of names, between bars.")],
    least: Annotated[float, typer.Option(help="Least share of a kernel that is printed.")] = 0.02,
) -> None:
    """Prints the kernels of each way by their time."""
    os.environ["OPWELD_EVENTS"] = str(os.open(os.devnull, os.O_WRONLY))
    run = run_of_today()
    print(f"{run['device']}, {run['versions']}, {run['date']}\n`{run['command']}`")
    for row in chosen((*ROWS, *CONVOLUTION_ROWS, *NETWORK_ROWS, *STEP_ROWS), only):
        is_step = row in STEP_ROWS
        options = Options(target="auto", check=False, training=is_step)
        with tempfile.TemporaryDirectory() as directory:
            prepared = prepare(row, options, Path(directory), is_step, True)
            print(f"\n{row.name}")
            with torch.set_grad_enabled(is_step):
                ways = prepared.backwards() if is_step else prepared.forwards()
                every = {**ways, **by_python(prepared, ways["opweld"])}
                host = medians(host_times(every, torch.cuda.synchronize))
                print("  host, us: " + ", ".join(f"{name} {us:.0f}" for name, us in host.items()))
                print_times(ways, prepared.device, least)


def by_python(prepared: Prepared, way: Way) -> dict[str, Way]:
    """ModelNew whose calls are made by Python, where C++ makes those that were recorded."""
    held = prepared.modules["opweld"]._opweld
    replay: Any = getattr(held, "replay", None)
    if replay is None:
        return {}

    def run() -> Any:
        held.replay = lambda *_: None
        try:
            return way()
        finally:
            held.replay = replay

    return {"opweld by Python": run}


def print_times(ways: dict[str, Way], device: str, least: float) -> None:
    flush = flush_for(device)
    for name, way in ways.items():
        times, calls = kernel_times(way, flush)
        total = sum(times.values())
        print(f"  {name}: {total:.1f} us in {sum(calls.values()):.0f} kernels")
        for kernel, time in sorted(times.items(), key=lambda item: -item[1]):
            if time >= least * total:
                print(f"    {time:8.1f} us  x{calls[kernel]:<4.0f}{kernel[:COLUMNS]}")


if __name__ == "__main__":
    typer.run(main)
