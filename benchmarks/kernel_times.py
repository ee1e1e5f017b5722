"""Where the time of a network goes on the device: kernels of ModelNew and of the ways beside it.

    python benchmarks/kernel_times.py 'ResNet-50, batch 32|relu, tanh, shift'

Names are rows of networks.py, or parts of them, between bars. Microseconds a call by PyTorch's
profiler, means over CALLS calls without gradients, each behind a flush of the L2 cache; before them
what the host takes until a call returns, the device idle before, also where Python makes the calls
that C++ makes otherwise. Needs a CUDA device and nvcc.
Printed, to be kept with the device, date and versions that stand at its head.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch.profiler import ProfilerActivity, profile

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.network_child import Prepared, Way, host_times, medians, prepare  # noqa: E402
from benchmarks.networks import CONVOLUTION_ROWS, NETWORK_ROWS, ROWS, chosen  # noqa: E402
from benchmarks.record import run_of_today  # noqa: E402

CALLS, FLUSH_BYTES, COLUMNS = 10, 256 << 20, 100


def main(
    only: Annotated[str, typer.Argument(help="Parts of names, between bars.")],
    least: Annotated[float, typer.Option(help="Least share of a kernel that is printed.")] = 0.02,
) -> None:
    """Prints the kernels of each way by their time."""
    os.environ["OPWELD_EVENTS"] = str(os.open(os.devnull, os.O_WRONLY))
    run = run_of_today()
    print(f"{run['device']}, {run['versions']}, {run['date']}\n`{run['command']}`")
    for row in chosen((*ROWS, *CONVOLUTION_ROWS, *NETWORK_ROWS), only):
        with tempfile.TemporaryDirectory() as directory:
            prepared = prepare(row, "auto", Path(directory), False, True)
            print(f"\n{row.name}")
            with torch.no_grad():
                ways = {**prepared.forwards(), **by_python(prepared)}
                host = medians(host_times(ways, torch.cuda.synchronize))
            print("  host, us: " + ", ".join(f"{name} {us:.0f}" for name, us in host.items()))
            print_times(prepared, least)


def by_python(prepared: Prepared) -> dict[str, Way]:
    """ModelNew whose calls are made by Python, where C++ makes those that were recorded."""
    held, forward = prepared.modules["opweld"]._opweld, prepared.forwards()["opweld"]
    replay: Any = getattr(held, "replay", None)
    if replay is None:
        return {}

    def run() -> Any:
        held.replay = lambda *_: None
        try:
            return forward()
        finally:
            held.replay = replay

    return {"opweld by Python": run}


def print_times(prepared: Prepared, least: float) -> None:
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=prepared.device)
    for name, forward in prepared.forwards().items():
        times, calls = kernel_times(forward, flush)
        total = sum(times.values())
        print(f"  {name}: {total:.1f} us in {sum(calls.values()):.0f} kernels")
        for kernel, time in sorted(times.items(), key=lambda item: -item[1]):
            if time >= least * total:
                print(f"    {time:8.1f} us  x{calls[kernel]:<4.0f}{kernel[:COLUMNS]}")


def kernel_times(forward: Way, flush: torch.Tensor) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds and calls of each kernel in a call of `forward`."""
    with torch.no_grad():
        forward()
        with profile(activities=[ProfilerActivity.CUDA]) as measured:
            for _ in range(CALLS):
                flush.fill_(1)
                forward()
            torch.cuda.synchronize()
    times, calls = defaultdict[str, float](float), defaultdict[str, float](float)
    for event in measured.events() or ():
        if _is_kernel(event):
            times[event.name] += event.self_device_time_total / CALLS
            calls[event.name] += 1 / CALLS
    return times, calls


def _is_kernel(event: Any) -> bool:
    """Whether it runs on the device, and is not the flush."""
    on_device = event.device_type == torch.autograd.DeviceType.CUDA
    return on_device and "FillFunctor<int>" not in event.name


if __name__ == "__main__":
    typer.run(main)
