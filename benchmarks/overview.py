"""The README's table: for each kind of model what is gained or lost, from the recorded results.

    python benchmarks/overview.py

`docs/generate.py` writes it between its marks. A row names a case of a file of `results/`; there is
no figure in this file. Where a result is refused (`refusal.py`), the reason stands for its times.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from benchmarks.refusal import why_refused  # noqa: E402

# Where accounts keep the medians of each way; torch.compile counts as the faster of its two.
WAYS = {
    "eager": ("eager_ms", "eager", "eager_step_ms"),
    "torch.compile": ("compile_ms", "compile", "autotune_ms", "compile_step_ms"),
    "ModelNew": ("opweld_ms", "opweld", "opweld_step_ms"),
}
HEADS = ("model", *WAYS, "times eager", "times torch.compile", "on")


@dataclass(frozen=True)
class Row:
    """A case of an account; `part` names its times where it has several."""

    shown: str
    result: str
    case: str
    part: str = "ms"


EXAMPLES, PRODUCTS = "gpu-nvidia-h200", "products-nvidia-h200"
REDUCTIONS, ATTENTION = "reductions-nvidia-h200", "attention-nvidia-h200"
NETWORKS = "network-speed-nvidia-h200"
TRAINING = "training-nvidia-h200"
ON_CPU, CPU_REDUCTIONS = "cpu-cpu-2-cores", "cpu-reductions-cpu-2-cores"
BACKWARD = "ms_backward"
STEP = "ResNet-18, batch 32, step"
WIDE = "Linear 8192x8192 -> 8192, bfloat16"

ROWS = (
    Row("tanh-GELU, written out", EXAMPLES, "gelu"),
    Row("ReLU alone", EXAMPLES, "relu"),
    Row("Linear + swish, float32", PRODUCTS, "linear_swish"),
    Row("Linear + sigmoid, float32", PRODUCTS, "linear_sigmoid"),
    Row("Linear + ReLU, float32", PRODUCTS, "linear_relu"),
    Row("Linear + 6 operations, bfloat16", PRODUCTS, f"{WIDE}, 6 operations"),
    Row("Linear alone, bfloat16", PRODUCTS, WIDE),
    Row("attention, 2048 keys, float32", ATTENTION, "2048 keys, head size 64"),
    Row("attention, 2048 keys, bfloat16", ATTENTION, "2048 keys, head size 64, bfloat16"),
    Row("softmax, rows of 4096", REDUCTIONS, "softmax over rows of 4096"),
    Row("layer norm, rows of 4096", REDUCTIONS, "layer norm over 4096, 65536 rows"),
    Row("cumsum, 4 rows of 2^28", REDUCTIONS, "cumsum of 4 rows of 2^28"),
    Row("ResNet-18, 32 images", NETWORKS, "ResNet-18, batch 32"),
    Row("ResNet-50, 32 images", NETWORKS, "ResNet-50, batch 32"),
    Row("ResNet-50, 32 images, training mode", NETWORKS, "ResNet-50, batch 32, training"),
    Row("MobileNetV2, 32 images", NETWORKS, "MobileNetV2, batch 32"),
    Row("ViT-B, float32", NETWORKS, "ViT-B, 12 blocks"),
    Row("GPT, 12 blocks, float32", NETWORKS, "GPT, 12 blocks"),
    Row("MLP 8192 wide, --training, and backward", TRAINING, "mlp_8192"),
    Row("ResNet-18, 32 images, --training, and backward", NETWORKS, STEP, BACKWARD),
    Row("batch norm + ReLU, --training, and backward", TRAINING, "batch_norm_relu"),
    Row("small MLP, time of the host", NETWORKS, "MLP", "no_grad_us"),
    Row("small LSTM, time of the host", NETWORKS, "LSTM cell, 8 steps", "no_grad_us"),
    Row("tanh-GELU on a CPU", ON_CPU, "gelu_2048x8192, fresh memory"),
    Row("sum of columns on a CPU", CPU_REDUCTIONS, "sum of columns, 10x400000 float32, 2 threads"),
)  # fmt: skip


def table(rows: tuple[Row, ...] = ROWS, folder: Path = HERE / "results") -> str:
    """The rows as Markdown: times in ms, the shortest in bold, and ratios to ours."""
    lines = [line(HEADS), "|---" * len(HEADS) + "|"]
    for row in rows:
        account = json.loads((folder / f"{row.result}.json").read_text("utf-8"))
        (case,) = [case for case in account["cases"] if case["name"] == row.case]
        lines.append(line(cells(row, case, account)))
    return "\n".join(lines) + "\n"


def cells(row: Row, case: dict[str, Any], account: dict[str, Any]) -> list[str]:
    device = account["device"].removeprefix("NVIDIA ").removesuffix(" 80GB HBM3")
    if refused := why_refused(case):
        return [row.shown, refused, *[""] * (len(HEADS) - 3), device]
    times = times_of(case, row.part)
    new, least = times["ModelNew"], min(times.values())
    ratios = [f"{times[way] / new:.2f}" if way in times else "" for way in list(WAYS)[:2]]
    shown = {way: f"**{t:.4g}**" if t == least else f"{t:.4g}" for way, t in times.items()}
    return [row.shown, *(shown.get(way, "failed") for way in WAYS), *ratios, device]


def times_of(case: dict[str, Any], part: str) -> dict[str, float]:
    """Milliseconds of each way that was timed."""
    found: Mapping[str, Any] = case.get("timing") or case.get(part) or case
    scale = 1e-3 if part.endswith("_us") else 1.0
    times = {}
    for way, names in WAYS.items():
        each = [found[name] for name in names if found.get(name)]
        medians = [value["median"] if isinstance(value, dict) else value for value in each]
        if medians:
            times[way] = scale * min(medians)
    return times


def line(values: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(values)} |"


def main() -> None:
    print(table(), end="")


if __name__ == "__main__":
    main()
