"""Times the first kernel of some examples under several schedules, and a copy of as many bytes.

    python benchmarks/pointwise_schedules.py chain_bf16 gelu --vectors 1,2,4 --threads 128,256

Needs a CUDA device and nvcc. All schedules of an example and the copy run interleaved; one JSON
file keeps the run. What wins belongs in `Target` (src/opweld/target.py), with date, device and
command.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import run_of_today, slug  # noqa: E402

from opweld.capture import capture  # noqa: E402
from opweld.capture.dtypes import TO_TORCH  # noqa: E402
from opweld.ir.expr import evaluate  # noqa: E402
from opweld.ir.graph import Node, arena_of  # noqa: E402
from opweld.ir.kernel import Kernel  # noqa: E402
from opweld.ir.plan import Group, GroupKind, Plan, PointwiseSchedule  # noqa: E402
from opweld.judge.clock import time_interleaved  # noqa: E402
from opweld.judge.values import Samples  # noqa: E402
from opweld.lower import lower  # noqa: E402
from opweld.model_file import load, make_inputs, make_model  # noqa: E402
from opweld.plan import make_plan  # noqa: E402
from opweld.render import render  # noqa: E402
from opweld.simplify import simplify  # noqa: E402
from opweld.target import choose_target  # noqa: E402

COPY = "copy"


@dataclass(frozen=True)
class Problem:
    """The first welded group of a model, and the sizes of its symbols."""

    name: str
    plan: Plan
    group: Group
    sizes: dict[str, int]

    @property
    def num_bytes(self) -> int:
        return evaluate(self.group.estimate.bytes, self.sizes)


def main(
    examples: Annotated[list[str], typer.Argument(help="Names of files in examples/.")],
    lanes: Annotated[str, typer.Option(help="Elements an access, comma-separated.")] = "",
    vectors: Annotated[str, typer.Option(help="Accesses in flight a thread.")] = "1,2",
    threads: Annotated[str, typer.Option(help="Threads a block.")] = "128,256",
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = ROOT
    / "benchmarks/results",
) -> None:
    """Prints GB/s of each schedule, and writes <out>/pointwise-schedules-<device>.json."""
    results = []
    for example in examples:
        problem = problem_of(example)
        assert problem.group.schedule is not None
        widths = numbers(lanes) or [problem.group.schedule.lanes]
        choices = itertools.product(widths, numbers(vectors), numbers(threads))
        results.append(measure(problem, [PointwiseSchedule(*choice) for choice in choices]))
    account = {
        **run_of_today(),
        "examples": results,
    }
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"pointwise-schedules-{slug(account['device'])}.json"
    path.write_text(json.dumps(account, indent=1) + "\n")
    print(f"written to {path}")


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def problem_of(example: str) -> Problem:
    path = ROOT / "examples" / f"{example}.py"
    module = load(path)
    captured = capture(make_model(path, module), make_inputs(path, module), name=example)
    variant = captured.variants[0]
    graph = simplify(variant.graph, arena_of(variant.graph)).graph
    plan = make_plan(graph, choose_target("cuda", torch.cuda.get_device_capability()))
    group = next(group for group in plan.groups if group.kind is GroupKind.POINTWISE)
    sizes = {fact.name: fact.example for fact in variant.contract.symbols}
    return Problem(example, plan, group, sizes)


def measure(problem: Problem, schedules: list[PointwiseSchedule]) -> dict[str, Any]:
    """Samples of every schedule and of the copy, interleaved."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(8) as pool:
        folders = [Path(folder, str(position)) for position in range(len(schedules))]
        built = list(pool.map(build, itertools.repeat(problem), schedules, folders))
        tensors = [tensor(node, problem.sizes) for node in buffers_of(problem.group)]
        source = torch.empty(problem.num_bytes // 2, dtype=torch.uint8, device="cuda")
        copied = torch.empty_like(source)
        actions = {COPY: lambda: copied.copy_(source)}
        for schedule, (launch, kernel) in zip(schedules, built, strict=True):
            actions[str(schedule)] = call(launch, kernel, tensors, problem.sizes)
        samples = time_interleaved(actions, torch.device("cuda"), budget_s=1.0)
    rows = {name: row(problem, samples[name], samples[COPY]) for name in samples}
    print(f"{problem.name}: {problem.group.name}, {problem.num_bytes / 1e6:.1f} MB")
    for name, figures in sorted(rows.items(), key=lambda item: item[1]["median_ms"]):
        print(f"  {figures['gb_per_s']:7.0f} GB/s {figures['percent_of_copy']:6.1f} %  {name}")
    return {"example": problem.name, "bytes": problem.num_bytes, "schedules": rows}


def row(problem: Problem, samples: Samples, copy: Samples) -> dict[str, float]:
    return {
        "median_ms": samples.median,
        "p10_ms": samples.p10,
        "p90_ms": samples.p90,
        "gb_per_s": problem.num_bytes / samples.median / 1e6,
        "percent_of_copy": 100 * copy.median / samples.median,
    }


def buffers_of(group: Group) -> tuple[Node, ...]:
    return (*group.inputs, *group.outputs)


def tensor(node: Node, sizes: dict[str, int]) -> torch.Tensor:
    shape = [evaluate(size, sizes) for size in node.type.shape]
    return torch.randn(shape, device="cuda").to(TO_TORCH[node.type.dtype])


def build(
    problem: Problem, schedule: PointwiseSchedule, folder: Path
) -> tuple[Callable[..., int], Kernel]:
    """The launcher of the contiguous kernel, compiled for this device."""
    group = replace(problem.group, schedule=schedule)
    (welded,) = lower(replace(problem.plan, groups=(group,)))
    folder.mkdir()
    source, library = folder / "kernel.cu", folder / "kernel.so"
    source.write_text(render(problem.name, (welded,), "cuda").text)
    major, minor = torch.cuda.get_device_capability()
    arch = f"{major}{minor}{'a' if major >= 9 else ''}"
    flags = ["-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC"]
    command = ["nvcc", *flags, f"-gencode=arch=compute_{arch},code=sm_{arch}"]
    subprocess.run([*command, "-o", str(library), str(source)], check=True)
    kernel = welded.contiguous
    return getattr(ctypes.CDLL(str(library)), f"{kernel.name}_{kernel.variant}"), kernel


def call(
    launch: Callable[..., int], kernel: Kernel, tensors: list[torch.Tensor], sizes: dict[str, int]
) -> Callable[[], None]:
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    extents = [ctypes.c_int64(sizes[extent.name]) for extent in kernel.extents]
    count = ctypes.c_int64(tensors[-1].numel())
    largest = ctypes.c_int64(max(tensor.numel() for tensor in tensors))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def run() -> None:
        error = launch(*pointers, *extents, count, largest, ctypes.c_int(1), stream)
        assert error == 0, f"CUDA error {error}"

    return run


if __name__ == "__main__":
    typer.run(main)
