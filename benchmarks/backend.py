"""Models that cannot be captured as a whole, or that people compile as they are: by both backends.

    python benchmarks/backend.py [--device cuda]

Eager, torch.compile's own backend and `backend="opweld"`, without gradients, by turns in one
process; errors against the model in float64. One JSON file keeps the run.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import EQUAL_RUNS, run_of_today, slug  # noqa: E402

import opweld  # noqa: E402
from opweld.dynamo import backend  # noqa: E402

ROUNDS, CALLS = 15, 10
SIDES = ("eager", "inductor", "opweld")


class Branch(nn.Module):
    """Which of two tails runs depends on the values."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.first(x), approximate="tanh") * 0.5 + x
        y = torch.tanh(y) * 2 if y.mean() > 0 else torch.sigmoid(y) - 1
        return F.softmax(self.last(y), -1)


class Padded(nn.Module):
    """A transformer encoder whose rows end early."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.arange(len(x), device=x.device) % x.shape[1] + x.shape[1] // 2
        mask = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
        return self.layers(x, src_key_padding_mask=mask)


class Expert(nn.Module):
    """A forward of its own: Dynamo skips that of a loop in which a graph breaks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, share: Tensor) -> Tensor:
        return self.last(F.silu(self.first(x))) * share[:, None]


class Experts(nn.Module):
    """A mixture of experts: each takes the rows that chose it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.experts = nn.ModuleList(Expert(width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        share, chosen = F.softmax(self.gate(x), -1).topk(2, -1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, which = torch.where(chosen == number)
            result.index_add_(0, rows, expert(x[rows], share[rows, which]))
        return F.layer_norm(result + x, (x.shape[-1],))


class Averaged(nn.Module):
    """Keeps a running average of its activations in a buffer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.fc(x))
        self.average.lerp_(y.mean(0), 0.1)
        return torch.clamp((y - self.average) * 1.5, -2, 2)


class Chain(nn.Module):
    """Pointwise work and a norm: what fusion is for."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x * torch.sigmoid(1.702 * x) + x.abs().sqrt())
        print(end="")
        return torch.log1p(y.exp()) * y.cos()


Made = Callable[[int], nn.Module]
CASES: dict[str, tuple[Made, int, tuple[int, ...]]] = {
    "branch on values": (Branch, 4096, (4096,)),
    "encoder, padding mask": (Padded, 512, (16, 512)),
    "mixture of experts": (Experts, 1024, (8192,)),
    "running average": (Averaged, 2048, (8192,)),
    "chain with a print": (Chain, 8192, (8192,)),
}


def main(
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    small: Annotated[bool, typer.Option(help="An eighth of each width and first size.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    run = run_of_today(on_cpu=device == "cpu")
    path = out / f"backend-{slug(run['device'])}.json"
    cases: list[dict[str, Any]] = []
    for name in CASES:
        try:
            cases.append(measured(name, device, 8 if small else 1))
        except Exception as error:  # the others are still worth their figures
            cases.append({"name": name, "problem": f"{type(error).__name__}: {error}"[:300]})
        print(json.dumps(cases[-1]), flush=True)
        path.write_text(json.dumps({"suite": "backend", **run, "cases": cases}, indent=1) + "\n")
    print(f"written: {path}")


@torch.no_grad()
def measured(name: str, device: str, part: int) -> dict[str, Any]:
    """Milliseconds a call of each side, and its error."""
    make, width, sizes = CASES[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    backend._COMPILED.clear()
    model = make(width // part).to(device).eval()
    x = torch.randn(max(sizes[0] // part, 2), *sizes[1:], width // part, device=device)
    models = {side: copy.deepcopy(model) for side in SIDES}
    calls: dict[str, Any] = {
        "eager": models["eager"],
        "inductor": torch.compile(models["inductor"]),
        "opweld": torch.compile(models["opweld"], backend=backend.opweld),
    }
    expected = copy.deepcopy(model).double()(x.double())
    case: dict[str, Any] = {"name": name, "shape": list(x.shape)}
    for side, call in calls.items():
        started = time.monotonic()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", backend.OpweldWarning)
            result = call(x)
        synchronize(device)
        case[f"{side}_first_s"] = time.monotonic() - started
        case[f"{side}_error"] = float((result.double() - expected).abs().max())
        warned = [str(w.message) for w in caught if w.category is backend.OpweldWarning]
        case |= {"warnings": warned} if warned else {}
    if not case["opweld_error"] <= 2 * max(case["eager_error"], case["inductor_error"]):
        case["grade"] = "F"  # so that no table has its figures
    found = opweld.graphs()
    case |= {
        "graphs": len(found),
        "with_kernels": sum(bool(graph.kernels) for graph in found),
        "kernels": sum(len(graph.kernels) for graph in found),
        "reasons": sorted({graph.reason for graph in found if graph.reason}),
    }
    if make is not Averaged:  # each call of that one is another
        first = calls["opweld"](x)
        different = sum(not torch.equal(calls["opweld"](x), first) for _ in range(EQUAL_RUNS))
        case |= {"runs": EQUAL_RUNS, "different_runs": different}
    return {**case, **timed(calls, x, device)}


def timed(calls: dict[str, Any], x: Tensor, device: str) -> dict[str, float]:
    """Medians of interleaved blocks, by the host's clock around work that is waited for."""
    found: dict[str, list[float]] = {side: [] for side in calls}
    for call in calls.values():
        for _ in range(3):
            call(x)
    for turn in range(ROUNDS):
        for side in (*SIDES[turn % 3 :], *SIDES[: turn % 3]):
            synchronize(device)
            started = time.perf_counter()
            for _ in range(CALLS):
                calls[side](x)
            synchronize(device)
            found[side].append((time.perf_counter() - started) * 1e3 / CALLS)
    return {f"{side}_ms": statistics.median(each) for side, each in found.items()}


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    typer.run(main)
