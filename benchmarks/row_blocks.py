"""Times products and their tails on the CPU in row blocks, and one after the other.

    python benchmarks/row_blocks.py                 every shape
    python benchmarks/row_blocks.py --only 64-256   those whose name has it
    python benchmarks/row_blocks.py --alone         one thread, by its own clock

Each case is a Linear layer with a tail, emitted twice: with row blocks wherever their plan would
have them, or, where it would not, with blocks all the same ("forced"); and without. Eager and
torch.compile run beside them, interleaved. Wall-clock times want a machine on which nothing else
runs; with `--alone` they are the processor time of one thread, which others lengthen by the caches
and the memory that they share, and not by the cores. The load average is kept with the times.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import thread_time
from typing import Annotated, Any

import torch
import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import keep, run_of_today  # noqa: E402

from opweld import target  # noqa: E402
from opweld.driver import compile_file  # noqa: E402
from opweld.judge.measure.clock import rotated, summarise, time_interleaved  # noqa: E402
from opweld.judge.values import Samples  # noqa: E402
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402
from opweld.target import CPU, RowBlockLimits  # noqa: E402

SOURCE = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear({k}, {n}, bias={bias})

    def forward(self, x):
        y = self.fc(x)
        return {tail}

def get_inputs():
    return [torch.randn({m}, {k})]

def get_init_inputs():
    return []
"""
RELU, GELU = "torch.relu(y)", "F.gelu(y)"
SWISH = "torch.tanh(torch.clamp(y * torch.sigmoid(y) / 2.0, -1.0, 1.0))"
TAILS = {RELU: "relu", GELU: "gelu", SWISH: "swish chain"}


@dataclass(frozen=True)
class Case:
    m: int
    k: int
    n: int
    tail: str
    bias: bool = True

    @property
    def name(self) -> str:
        bias = "" if self.bias else ", no bias"
        return f"{self.m}x{self.k}-{self.n} {TAILS[self.tail]}{bias}"

    @property
    def source(self) -> str:
        return SOURCE.format(m=self.m, k=self.k, n=self.n, tail=self.tail, bias=self.bias)


CASES = (
    Case(262144, 64, 256, RELU),
    Case(65536, 32, 64, RELU),
    Case(16384, 128, 512, GELU),
    Case(65536, 256, 1024, GELU),
    Case(65536, 256, 1024, GELU, bias=False),
    Case(4096, 256, 1024, GELU),
    Case(512, 256, 1024, GELU),
    Case(16384, 512, 2048, SWISH),
    Case(16384, 640, 1024, GELU),
    Case(16384, 768, 1024, GELU),
    Case(16384, 1024, 1024, GELU),
    Case(4096, 2048, 2048, GELU),
    Case(1024, 8192, 8192, SWISH),
)


def main(
    only: Annotated[str, typer.Option(help="Only cases whose name has one of a|b|c in it.")] = "",
    budget_s: Annotated[float, typer.Option(help="Seconds for each way of each case.")] = 3.0,
    alone: Annotated[bool, typer.Option(help="Processor time of one thread.")] = False,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = HERE / "results/row-blocks.json",
) -> None:
    """Keeps medians and their 10 and 90 percent marks, in ms."""
    if alone:
        torch.set_num_threads(1)
    cases = [case for case in CASES if any(part in case.name for part in only.split("|"))]
    run = {
        **run_of_today(on_cpu=True),
        "threads": torch.get_num_threads(),
        "clock": "processor time of the thread" if alone else "wall clock",
        "allocator": os.environ.get("GLIBC_TUNABLES", "default"),
    }
    with tempfile.TemporaryDirectory() as folder:
        for index, case in enumerate(cases):
            result = measured(case, Path(folder, f"case{index}.py"), budget_s, alone)
            print(line_of(result), flush=True)
            keep(out, run, run, result, [each.name for each in CASES])
    print(f"written to {out}")


def measured(case: Case, path: Path, budget_s: float, alone: bool) -> dict[str, Any]:
    path.write_text(case.source)
    planned = emitted(path, "planned", CPU.row_blocks)
    whole = emitted(path, "whole", None)
    chosen = "def _in_row_blocks" in planned.read_text()
    if not chosen:
        assert CPU.row_blocks is not None
        planned = emitted(path, "forced", replace(CPU.row_blocks, least_bytes=0, packings=0))
    torch.manual_seed(0)
    original = import_file(path, path.stem)
    inputs, eager = original.get_inputs(), original.Model().eval()
    models = {name: _model(file, eager) for name, file in (("blocks", planned), ("whole", whole))}
    compiled = torch.compile(eager)
    ways: dict[str, Callable[[], Any]] = {
        "eager": lambda: eager(*inputs),
        "compile": lambda: compiled(*inputs),
        "whole": lambda: models["whole"](*inputs),
        "blocks": lambda: models["blocks"](*inputs),
    }
    before = os.getloadavg()[0]
    with torch.inference_mode():
        timed = processor_times if alone else wall_times
        times = timed(ways, budget_s)
        error = float((ways["blocks"]() - ways["eager"]()).abs().max())
    return {
        "name": case.name,
        "chosen": chosen,
        "load": [before, os.getloadavg()[0]],
        "difference_to_eager": error,
        "ms": {name: {"median": s.median, "p10": s.p10, "p90": s.p90} for name, s in times.items()},
    }


def wall_times(ways: dict[str, Callable[[], Any]], budget_s: float) -> dict[str, Samples]:
    return time_interleaved(ways, torch.device("cpu"), budget_s)


def processor_times(ways: dict[str, Callable[[], Any]], budget_s: float) -> dict[str, Samples]:
    """Times of this thread alone; PyTorch must have no other."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    while sum(map(sum, times.values())) < budget_s * len(ways) * 1e3 or len(times["blocks"]) < 5:
        for name in rotated(list(ways), len(times["blocks"])):
            start = thread_time()
            result = ways[name]()
            times[name].append((thread_time() - start) * 1e3)
            del result
    return {name: summarise(values) for name, values in times.items()}


def emitted(path: Path, word: str, limits: RowBlockLimits | None) -> Path:
    """The file that the compiler writes with these limits."""
    target.TARGETS["cpu"] = replace(CPU, row_blocks=limits)
    text = compile_file(path, Options(target="cpu")).text
    new = path.with_stem(f"{path.stem}_{word}")
    new.write_text(text)
    return new


def _model(file: Path, eager: torch.nn.Module) -> Any:
    model = import_file(file, file.stem).ModelNew().eval()
    model.load_state_dict(eager.state_dict())
    return model


def line_of(result: dict[str, Any]) -> str:
    ms = {name: marks["median"] for name, marks in result["ms"].items()}
    faster = ms["whole"] / ms["blocks"]
    words = ", ".join(f"{name} {value:.4g} ms" for name, value in ms.items())
    return f"{result['name']}: {words}, {faster:.2f}x{'' if result['chosen'] else ' (forced)'}"


if __name__ == "__main__":
    typer.run(main)
