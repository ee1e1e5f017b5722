"""Times attention beside eager and torch.compile.

    python benchmarks/attention.py                       every case
    python benchmarks/attention.py --only '8192|mask'

As reductions.py does: each case is a small model that goes through the compiler, and the emitted
file is built, imported and timed, interleaved with the others. Errors are those of the first
batches against float64. One JSON file keeps the run.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.one_expression import model_text  # noqa: E402
from benchmarks.record import device_name, keep, run_of_today, slug  # noqa: E402
from benchmarks.reductions import line_of, made_side_by_side, outcome  # noqa: E402

BATCHES, HEADS = 8, 4
NORMAL = "torch.randn({shape}, device='{device}', dtype=torch.{dtype})"
FUNCTION = "F.scaled_dot_product_attention(x, y, z{more})"
WRITTEN_OUT = "torch.softmax(x @ y.mT / {root} + w, -1) @ z"


@dataclass(frozen=True)
class Case:
    """Attention of 32 heads; `mask`: an operand of one number for each pair, which heads share."""

    name: str
    result: str
    length: int
    depth: int
    causal: bool = False
    mask: str = ""
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        return (BATCHES, HEADS, self.length, self.depth)

    def source(self, device: str) -> str:
        pairs = (BATCHES, 1, self.length, self.length)
        texts = [(NORMAL, self.shape)] * 3 + ([(self.mask, pairs)] if self.mask else [])
        operands = [
            text.format(shape=shape, device=device, dtype=self.dtype) for text, shape in texts
        ]
        return model_text(self.result, operands)

    @property
    def num_bytes(self) -> int:
        return 4 * getattr(torch, self.dtype).itemsize * math.prod(self.shape)

    @property
    def flops(self) -> int:
        """Of both products, of as many pairs as count."""
        pairs = self.length * (self.length + 1) // 2 if self.causal else self.length**2
        return 4 * BATCHES * HEADS * pairs * self.depth


def function(length: int, depth: int, causal: bool = False, dtype: str = "float32") -> Case:
    name = f"{length} keys, head size {depth}{', causal' if causal else ''}"
    name += "" if dtype == "float32" else f", {dtype}"
    more = ", is_causal=True" if causal else ""
    return Case(name, FUNCTION.format(more=more), length, depth, causal, dtype=dtype)


BOOLS = "torch.randint(2, {shape}, dtype=torch.bool, device='{device}')"
CASES = (
    *(
        function(length, depth, causal)
        for depth in (64, 128)
        for causal in (False, True)
        for length in (512, 2048, 8192)
    ),
    function(2048, 256),
    *(function(length, 1024) for length in (512, 2048, 8192)),
    function(2048, 1024, causal=True),
    Case(
        "2048 keys, head size 64, a bool mask",
        FUNCTION.format(more=", attn_mask=w"),
        *(2048, 64, False, BOOLS),
    ),
    Case(
        "2048 keys, head size 64, written out with a bias",
        WRITTEN_OUT.format(root=8.0),
        *(2048, 64, False, NORMAL),
    ),
    *(function(2048, depth, dtype="bfloat16") for depth in (64, 128, 1024)),
)


def main(
    only: Annotated[str, typer.Option(help="Parts of names, between bars.")] = "",
    baselines: Annotated[str, typer.Option(help="compile, autotune: which there are.")] = "compile",
    budget_s: Annotated[float, typer.Option(help="Seconds that a case's ways are timed.")] = 2.0,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    """Writes <out>/attention-<device>.json; a case that failed says why."""
    start = time.perf_counter()
    if not torch.cuda.is_available():
        raise SystemExit("attention is the library's on the CPU: there is nothing to time")
    cases = [case for case in CASES if any(part in case.name for part in only.split("|"))]
    run = run_of_today(False)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"attention-{slug(device_name(False))}.json"
    with tempfile.TemporaryDirectory() as folder:
        made = made_side_by_side(cases, "cuda", Path(folder))
        print(f"compiled and built in {time.perf_counter() - start:.0f} s", flush=True)
        for case, future in zip(cases, made, strict=True):
            result = {**outcome(case, future, "cuda", baselines, budget_s), "flops": case.flops}
            print(line_of(result), flush=True)
            keep(path, run, run, result, [each.name for each in CASES])
    print(f"written to {path}, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    typer.run(main)
