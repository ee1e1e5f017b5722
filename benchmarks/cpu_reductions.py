"""Times models of reductions on the CPU beside eager and torch.compile, on one thread and on all.

    python benchmarks/cpu_reductions.py                    every case
    python benchmarks/cpu_reductions.py --only 'softmax|sum' --threads 1

Each case is a small model that goes through the compiler; the emitted file is built, imported and
timed, everything that a call does included. The ways of one case run interleaved, by the judge's
clock. Errors are against float64. One JSON file keeps the run, with how loaded the machine was: a
busy one lengthens its slow calls first, so that the 10th percentile says more than the median.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.one_expression import model_text  # noqa: E402
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
from opweld.judge.numerics.grade import grade  # noqa: E402
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402

CPU = torch.device("cpu")
SOFTMAX = "F.softmax(x, {axis})"
RMS_NORM = "(x.float() * torch.rsqrt(x.float().square().mean(-1, True) + 1e-6)).to(x.dtype)"


@dataclass(frozen=True)
class Case:
    """A forward of x, or of x and y, which both have this shape."""

    what: str
    result: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    num_operands: int = 1

    @property
    def name(self) -> str:
        return f"{self.what}, {'x'.join(map(str, self.shape))} {self.dtype}"

    @property
    def source(self) -> str:
        one = f"torch.randn({self.shape}).to(torch.{self.dtype})"
        return model_text(self.result, [one] * self.num_operands)


def softmax(*shape: int, axis: int = -1, dtype: str = "float32") -> Case:
    where = "rows" if axis == -1 else f"axis {axis}"
    return Case(f"softmax of {where}", SOFTMAX.format(axis=axis), shape, dtype)


def total(what: str, axes: str, *shape: int, dtype: str = "float32") -> Case:
    return Case(f"sum of {what}", f"x.sum({axes})", shape, dtype)


CASES = (
    softmax(4096, 1024),
    softmax(1024, 4096),
    softmax(64, 65536),
    softmax(131072, 32),
    softmax(400000, 10),
    softmax(64, 64, 1024, axis=1),
    softmax(1024, 4096, dtype="float16"),
    softmax(1024, 4096, dtype="bfloat16"),
    softmax(64, 65536, dtype="bfloat16"),
    Case("log softmax of rows", "F.log_softmax(x, -1)", (4096, 1024)),
    Case("layer norm", "F.layer_norm(x, (1024,))", (4096, 1024)),
    Case("RMS norm", RMS_NORM, (4096, 1024), "float16"),
    Case("variance of rows", "x.var(-1)", (4096, 1024)),
    Case("argmax of rows", "x.argmax(-1)", (4096, 1024)),
    Case("largest of columns", "x.amax(0)", (4096, 1024)),
    total("rows", "-1", 4096, 1024),
    total("rows", "-1", 400000, 10),
    total("columns", "0", 65536, 64),
    total("columns", "0", 64, 65536),
    total("columns", "0", 10, 400000),
    total("all", "", 4096, 4096),
    Case("mean squared error", "F.mse_loss(x, y)", (4096, 4096), num_operands=2),
    Case("cumsum of rows", "x.cumsum(-1)", (4096, 1024)),
    Case("cumsum of columns", "x.cumsum(0)", (4096, 1024)),
    Case("max pool 1-D, 2", "F.max_pool1d(x, 2)", (32, 64, 2048)),
    Case("max pool 2-D, 2", "F.max_pool2d(x, 2)", (16, 64, 64, 64)),
    Case("max pool 2-D, 3, stride 2", "F.max_pool2d(x, 3, 2, 1)", (16, 64, 64, 64)),
    Case("max pool 3-D, 2", "F.max_pool3d(x, 2)", (4, 32, 32, 32, 32)),
)


def main(
    only: Annotated[str, typer.Option(help="Only cases whose name has one of a|b|c in it.")] = "",
    threads: Annotated[
        str, typer.Option(help="Threads, comma-separated; by default 1 and all.")
    ] = "",
    budget_s: Annotated[float, typer.Option(help="Seconds for each way of each case.")] = 0.5,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    """Writes <out>/cpu-reductions-<device>.json."""
    cases = [case for case in CASES if any(part in case.name for part in only.split("|"))]
    counts = tuple(map(int, threads.split(","))) if threads else (1, torch.get_num_threads())
    names = [name_of(case, count) for case in CASES for count in sorted({1, 2, *counts})]
    run = run_of_today(on_cpu=True)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"cpu-reductions-{slug(device_name(on_cpu=True))}.json"
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases):
            ways = Ways(case, Path(folder, f"reduction{number}.py"))
            for count in dict.fromkeys(counts):
                result = ways.timed(count, budget_s)
                print(line_of(result), flush=True)
                keep(path, run, {**run, "load": os.getloadavg()[0]}, result, names)
    print(f"written to {path}")


def name_of(case: Case, threads: int) -> str:
    return f"{case.name}, {threads} {'thread' if threads == 1 else 'threads'}"


class Ways:
    """The ways of a case: eager, torch.compile and the emitted file, which is built here."""

    def __init__(self, case: Case, path: Path) -> None:
        self.case = case
        path.write_text(case.source)
        compiled = compile_file(path, Options(target="cpu"))
        self.plan = [row.reason for row in compiled.main_rows]
        new = path.with_stem(f"{path.stem}_new")
        new.write_text(compiled.text)
        torch.manual_seed(0)
        original = import_file(path, f"{path.stem}_original")
        self.model = original.Model()
        self.inputs = original.get_inputs()
        self.ours = import_file(new, f"{new.stem}_module").ModelNew()

    def timed(self, threads: int, budget_s: float) -> dict[str, Any]:
        """Milliseconds of each way on so many threads, and errors against float64."""
        torch.set_num_threads(threads)
        torch._dynamo.reset()  # what torch.compile made for another number of threads
        compiled = torch.compile(self.model)
        inputs = self.inputs
        actions: dict[str, Callable[[], Any]] = {
            "eager_ms": lambda: self.model(*inputs),
            "compile_ms": lambda: compiled(*inputs),
            "opweld_ms": lambda: self.ours(*inputs),
        }
        with torch.no_grad():
            exact = self.model(*(x.double() for x in inputs))
            errors = {name[:-3]: error(action(), exact) for name, action in actions.items()}
            judged = {**runs_that_differ(actions["opweld_ms"]), **self.grade(exact)}
            samples = time_interleaved(actions, CPU, budget_s)
        return {
            "name": name_of(self.case, threads),
            "threads": threads,
            **{name: each.median for name, each in samples.items()},
            "spread": {name: [each.p10, each.p90] for name, each in samples.items()},
            "rms_error": errors,
            **judged,
            "plan": self.plan,
        }

    def grade(self, exact: torch.Tensor) -> dict[str, Any]:
        """Of numbers alone: places are right or wrong."""
        ours, eager = self.ours(*self.inputs), self.model(*self.inputs)
        if not eager.is_floating_point():
            return {}
        sums = ErrorSums(eager.dtype)
        sums.add(ours, eager, exact)
        return {"grade": grade(sums.figures())}


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float((result.double() - exact).square().mean().sqrt())


def line_of(result: dict[str, Any]) -> str:
    """Median times, and the 10th percentile of each."""
    times = ", ".join(
        f"{way} {result[f'{way}_ms']:.3g} ({result['spread'][f'{way}_ms'][0]:.3g})"
        for way in ("eager", "compile", "opweld")
    )
    return f"{result['name']}: {times} | {'; '.join(result['plan'])[:80]}"


if __name__ == "__main__":
    typer.run(main)
