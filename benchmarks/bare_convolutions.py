"""Times single convolutions beside eager, channels last and the least that they can take.

    python benchmarks/bare_convolutions.py CASES.py                      all of them
    python benchmarks/bare_convolutions.py CASES.py --only 'resnet|gan'  names with one of these
    python benchmarks/bare_convolutions.py CASES.py --baselines compile
    python benchmarks/bare_convolutions.py CASES.py --kernels             and each kernel of ours

CASES.py has a dictionary CASES: for each name a dictionary with `kind` ("conv" or "convT"), `n`,
`c`, `space`, `out`, `kernel`, `stride`, `padding`, `dilation`, `groups` and `output_padding`. The
floor is the larger of what moving input, weight and result once takes at a copy's speed, and of the
operations at FLOPS. Needs a CUDA device and nvcc. All files are emitted and built side by side,
then each case is timed alone, interleaved, behind a flush of the L2 cache. Errors are those of the
first image against float64.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.compiled import compiled_ways  # noqa: E402
from benchmarks.kernel_times import COLUMNS  # noqa: E402
from benchmarks.products import copy_bandwidth  # noqa: E402
from benchmarks.profiled import flush_for, kernel_times  # noqa: E402
from benchmarks.record import (  # noqa: E402
    device_name,
    keep,
    run_of_today,
    runs_that_differ,
    slug,
)

from opweld.driver import compile_file  # noqa: E402
from opweld.judge.measure.clock import time_interleaved  # noqa: E402
from opweld.judge.numerics.compare import ErrorSums  # noqa: E402
from opweld.judge.numerics.effective import CONVOLUTIONS, Lowered  # noqa: E402
from opweld.judge.numerics.grade import grade  # noqa: E402
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402
from opweld.process.builder import build_in_child  # noqa: E402

SUITE = "bare-convolutions"
# Of 16-bit products, which have the digits of TF32: what a kernel may reach on an H100 or H200.
FLOPS = 700e12
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
BUDGET_S = 0.15
WORKERS = 12

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = {module}

    def forward(self, x):
        return self.conv(x)

def get_inputs():
    return [torch.randn({shape})]

def get_init_inputs():
    return []
"""

Case = Mapping[str, Any]


def main(
    cases: Annotated[Path, typer.Argument(help="A Python file with CASES.")],
    only: Annotated[str, typer.Option(help="Parts of names, between bars.")] = "",
    baselines: Annotated[str, typer.Option(help="Of compile and autotune.")] = "",
    kernels: Annotated[bool, typer.Option(help="Also time each kernel of ours.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    """Writes <out>/bare-convolutions-<device>.json, where it replaces the cases that it ran."""
    start = time.perf_counter()
    known: dict[str, Case] = import_file(cases, "cases").CASES
    chosen = {name: case for name, case in known.items() if _is_chosen(name, only)}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
            jobs = ((name, source_of(case), directory) for name, case in chosen.items())
            files = dict(zip(chosen, pool.map(_built, jobs), strict=True))
        copied = copy_bandwidth() * 1e9
        run = {**run_of_today(), "copy_gbps": copied / 1e9}
        path = out / f"{SUITE}-{slug(device_name())}.json"
        for name, case in chosen.items():
            result = {"name": name, **measured(case, files[name], baselines, copied, kernels)}
            print(f"{time.perf_counter() - start:.0f} s, {line_of(result)}", flush=True)
            for kernel, us in result.get("kernels_us", {}).items():
                print(f"  {us:10.1f} us {kernel[:COLUMNS]}", flush=True)
            keep(path, {"suite": SUITE, **run}, run, result, known)
    print(f"written to {path}")


def _is_chosen(name: str, only: str) -> bool:
    return any(part in name for part in only.split("|"))


def source_of(case: Case) -> str:
    """A model file of one convolution."""
    rank, transposed = len(case["space"]), case["kind"] == "convT"
    names = ["stride", "padding", "dilation", "groups"]
    names += ["output_padding"] if transposed else []
    given = ", ".join(f"{name}={case[name]!r}" for name in names)
    kind = f"Conv{'Transpose' if transposed else ''}{rank}d"
    module = f"nn.{kind}({case['c']}, {case['out']}, {case['kernel']!r}, {given})"
    shape = ", ".join(map(str, (case["n"], case["c"], *case["space"])))
    return MODEL.format(module=module, shape=shape)


def _built(job: tuple[str, str, str]) -> tuple[Path, Path, str]:
    """The model file, the emitted file, built where it has kernels, and why a kernel made it."""
    name, source, directory = job
    model, new = Path(directory, f"{name}.py"), Path(directory, f"{name}_new.py")
    model.write_text(source)
    compiled = compile_file(model, Options(mode="eval"))
    new.write_text(compiled.text)
    if "_CUDA" in compiled.text:
        build_in_child(new, model, "cuda", Options())
    return model, new, "; ".join(row.reason for row in compiled.main_rows)


def measured(
    case: Case, files: tuple[Path, Path, str], baselines: str, copied: float, kernels: bool
) -> dict[str, Any]:
    """Times in ms, errors, what the plan says; with `kernels` microseconds of each of ours."""
    model, new, plan = files
    original, emitted = import_file(model, f"{model.stem}_original"), import_file(new, new.stem)
    torch.manual_seed(0)
    with torch.device("cuda"):
        eager, ours = original.Model().eval(), emitted.ModelNew().eval()
        (x,) = original.get_inputs()
    ours.load_state_dict(eager.state_dict())
    ways: dict[str, Callable[[], Any]] = {
        "eager_ms": lambda: eager(x),
        "opweld_ms": lambda: ours(x),
    }
    if x.dim() in FORMATS:
        last = original.Model().eval().cuda().to(memory_format=FORMATS[x.dim()])
        turned = x.to(memory_format=FORMATS[x.dim()])
        ways["channels_last_ms"] = lambda: last(turned)
    with torch.no_grad():
        compiled, failed = compiled_ways(eager, [x], baselines)
        ways |= compiled
        different: dict[str, Any] = {**runs_that_differ(ways["opweld_ms"])}
        errors = errors_of(eager, eager(x)[:1], ours(x)[:1], x[:1])
        times = time_interleaved(ways, torch.device("cuda"), BUDGET_S)
        result = eager(x)
        if kernels:
            flush = flush_for("cuda")
            of_each, _ = kernel_times(ways["opweld_ms"], flush)
            different["kernels_us"] = dict(sorted(of_each.items(), key=lambda item: -item[1]))
    flops = flops_of(case, result, eager.conv)
    moved = 4 * (x.numel() + result.numel() + sum(p.numel() for p in eager.parameters()))
    return {
        **different,
        **failed,
        **errors,
        **{name: samples.median for name, samples in times.items()},
        "floor_ms": 1e3 * max(moved / copied, flops / FLOPS),
        "gflop": flops / 1e9,
        "mbytes": moved / 1e6,
        "plan": plan,
    }


def flops_of(case: Case, result: torch.Tensor, conv: Any) -> float:
    """Of the terms that there are; those of padding count."""
    taps = math.prod(conv.kernel_size) * case["c"] // case["groups"]
    if case["kind"] == "convT":
        return 2.0 * case["n"] * math.prod(case["space"]) * taps * case["out"]
    return 2.0 * result.numel() * taps


def errors_of(
    model: torch.nn.Module, old: torch.Tensor, new: torch.Tensor, x: torch.Tensor
) -> dict[str, Any]:
    """Root mean squares against float64: of ours, of eager's, and of operands rounded to TF32,
    which are allowed; the grade beside the larger of these two.
    """
    model.double()
    exact = model(x.double())
    with Lowered(CONVOLUTIONS):
        rounded = model(x.double())
    model.float()
    errors = {
        name: (found.double() - exact).square().mean().sqrt().item()
        for name, found in (("rms", new), ("eager_rms", old), ("tf32_rms", rounded))
    }
    sums = ErrorSums(torch.float32)
    sums.add(new, old if errors["eager_rms"] > errors["tf32_rms"] else rounded.float(), exact)
    return {"error": errors, "grade": grade(sums.figures())}


def line_of(result: Mapping[str, Any]) -> str:
    names = ("floor", "eager", "channels_last", "compile", "autotune", "opweld")
    times = (f"{name} {result[f'{name}_ms']:.4f}" for name in names if f"{name}_ms" in result)
    differ = f"{result['different_runs']} of {result['runs']} runs differ"
    return f"{result['name']}: {', '.join(times)}; grade {result['grade']}, {differ}"


if __name__ == "__main__":
    typer.run(main)
