"""Whether timing is fair: small models, each judged against a copy of itself.

    python benchmarks/judged_against_itself.py [--device cuda]

The speed of the copy should be 1. One JSON file keeps every judgement.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import run_of_today, slug  # noqa: E402

from opweld import Settings, check  # noqa: E402

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(LAYERS)

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(256, 32)]


def get_init_inputs():
    return []
"""
MODELS = {
    "Linear, tanh": "nn.Linear(32, 64), nn.Tanh()",
    "batch norm": "nn.BatchNorm1d(32)",
    "dropout": "nn.Dropout(0.1)",
    "Linear, batch norm, ReLU, dropout": "nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(),"
    " nn.Dropout(0.1)",
    "six Linears, ReLU": ", ".join(["nn.Linear(32, 32), nn.ReLU()"] * 6),
}


def main(
    num: Annotated[int, typer.Option(help="Judgements of each model.")] = 5,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    run = run_of_today(on_cpu=device == "cpu")
    with tempfile.TemporaryDirectory() as folder:
        cases = [
            judged(name, layers, Settings(device=device, baselines=("eager",)), num, Path(folder))
            for name, layers in MODELS.items()
        ]
    path = out / f"judged-against-itself-{slug(run['device'])}.json"
    path.write_text(json.dumps({"suite": "judged-against-itself", **run, "cases": cases}, indent=1))
    print(f"written: {path}")


def judged(name: str, layers: str, settings: Settings, num: int, folder: Path) -> dict[str, Any]:
    """The ratios of eager's time to the copy's, and what each verdict says of the speed."""
    model, copy = folder / "model.py", folder / "copy.py"
    model.write_text(SOURCE.replace("LAYERS", layers), "utf-8")
    copy.write_text(model.read_text("utf-8").replace("class Model(", "class ModelNew("), "utf-8")
    speeds, slower, faster, us = [], 0, 0, []
    for seed in range(num):
        judgement = check(model, copy, replace(settings, seed=seed))
        timing = judgement.timing
        assert judgement.verdict.passed and timing, judgement.verdict.reason
        assert timing.eager_ms and timing.vs_eager and timing.speedup_vs_eager
        speeds.append(timing.speedup_vs_eager)
        us.append(1e3 * timing.eager_ms.median)
        slower += timing.vs_eager.slower
        faster += timing.vs_eager.high < 1
    listed = ", ".join(f"{each:.2f}" for each in speeds)
    print(f"{name}: {listed}; {slower} called slower, {faster} faster", flush=True)
    found = {"name": name, "speeds": speeds, "slower": slower, "faster": faster}
    return {**found, "eager_us": statistics.median(us)}


if __name__ == "__main__":
    typer.run(main)
