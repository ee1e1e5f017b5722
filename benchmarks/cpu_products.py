"""oneDNN's product beside the one that torch's Linear calls, on the CPU: time and error.

    python benchmarks/cpu_products.py 1024 2048 2048

oneDNN sums over all of K in one accumulator of a register tile; `--parts` cuts K into shorter sums
that are added up, which is more exact and slower.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from opweld.judge.measure.clock import time_interleaved  # noqa: E402

CPU = torch.device("cpu")
HERE = ROOT / "benchmarks" / "results"


def main(
    rows: int,
    inputs: int,
    outputs: int,
    parts: Annotated[str, typer.Option(help="Into how many sums K is cut, comma-separated.")] = (
        "1,2,4,8"
    ),
    runs: Annotated[int, typer.Option(help="Interleaved runs of each.")] = 30,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = HERE / "cpu-products.json",
) -> None:
    """Writes median times, and root mean square and largest error against float64."""
    torch.manual_seed(0)
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs) / inputs**0.5
    bias = torch.randn(outputs)
    actions: dict[str, Callable[[], Tensor]] = {"torch": lambda: functional.linear(x, weight, bias)}
    for count in map(int, parts.split(",")):
        actions[f"oneDNN, {count} sums"] = one_dnn(x, weight, bias, count)
    with torch.no_grad():
        samples = time_interleaved(actions, CPU, 0.0, runs)
        exact = functional.linear(x.double(), weight.double(), bias.double())
        rows_of = {
            name: {"ms": samples[name].median, **error(action(), exact)}
            for name, action in actions.items()
        }
    account = {
        "date": date.today().isoformat(),
        "command": shlex.join(["python", "benchmarks/cpu_products.py", *sys.argv[1:]]),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "shape": [rows, inputs, outputs],
        "products": rows_of,
    }
    out.write_text(json.dumps(account, indent=1) + "\n")
    for name, figures in rows_of.items():
        print(name, ", ".join(f"{key} {value:.4g}" for key, value in figures.items()))


def one_dnn(x: Tensor, weight: Tensor, bias: Tensor, count: int) -> Callable[[], Tensor]:
    """The product by `count` calls, each over a part of K and added to the one before."""
    product: Any = torch.ops.mkldnn._linear_pointwise
    xs = x.chunk(count, dim=1)
    weights = [part.contiguous() for part in weight.chunk(count, dim=1)]

    def action() -> Tensor:
        total = product(xs[0], weights[0], bias, "none", [], "")
        for left, right in zip(xs[1:], weights[1:], strict=True):
            total = product.binary(left, total, right, None, "add")
        return total

    return action


def error(result: Tensor, exact: Tensor) -> dict[str, float]:
    distance = (result.double() - exact).abs()
    return {"rms_error": float(distance.square().mean().sqrt()), "max_error": float(distance.max())}


if __name__ == "__main__":
    typer.run(main)
