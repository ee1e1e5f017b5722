"""Times matrix products of many shapes, as they are planned, beside eager and torch.compile.

    python benchmarks/products.py                         float32 and 16-bit, with tails
    python benchmarks/products.py --only 'Linear|8205' --baselines compile,autotune

Needs a CUDA device and nvcc. Each case is a small model that goes through the compiler; the emitted
file is built, imported and timed, everything that a call does included. All ways of one case run
interleaved, behind a flush of the L2 cache. Errors are those of 64 rows against float64, over the
sum of the absolute products. One JSON file keeps the run.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.compiled import compiled_ways  # noqa: E402
from benchmarks.record import (  # noqa: E402
    device_name,
    keep,
    run_of_today,
    runs_that_differ,
    slug,
)
from benchmarks.refusal import why_refused  # noqa: E402

from opweld.driver import compile_file  # noqa: E402
from opweld.judge.measure.clock import time_interleaved  # noqa: E402
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402
from opweld.process.builder import build_in_child  # noqa: E402

LINEAR = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear({k}, {n}, dtype={dtype})

    def forward(self, x):
        y = self.fc({head})
        return {tail}

def get_inputs():
    return [torch.rand({m}, {k}, dtype={dtype}, device="{device}")]

def get_init_inputs():
    return []
"""
MLP = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear({k}, {n}), nn.Linear({n}, {k})

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))

def get_inputs():
    return [torch.rand({m}, {k}, device="{device}")]

def get_init_inputs():
    return []
"""
MATMUL = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, w):
        y = torch.matmul(x, w{turned})
        return {tail}

def get_inputs():
    return [torch.randn(size, dtype={dtype}, device="{device}") for size in ({a}, {b})]

def get_init_inputs():
    return []
"""
SIX = "torch.tanh(torch.clamp(y * torch.sigmoid(y) * 0.5, -1.0, 1.0)) + 1.0"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
F32, F16, BF16 = "torch.float32", "torch.float16", "torch.bfloat16"


@dataclass(frozen=True)
class Case:
    """One product: its model, the terms summed, the bytes that must move, and how it is shared."""

    name: str
    source: str
    num_terms: int
    num_bytes: int
    target: str = "auto"
    plain: bool = True  # nothing follows a product of `fc`, or of two inputs
    precision: str = "highest"  # torch.set_float32_matmul_precision, from compiling to timing


def linear(
    m: int,
    k: int,
    n: int,
    dtype: str = F32,
    tail: str = "y",
    target: str = "auto",
    precision: str = "highest",
    head: str = "x",
) -> Case:
    text = LINEAR.format(m=m, k=k, n=n, dtype=dtype, tail=tail, head=head, device=DEVICE)
    size = 4 if dtype == F32 else 2
    name = f"Linear {m}x{k} -> {n}, {dtype[6:]}" + (", 6 operations" if tail == SIX else "")
    name += "" if head == "x" else " of gelu(x)"
    name += "" if target == "auto" else f", kernels for {target}"
    name += "" if precision == "highest" else ", TF32 allowed"
    num_bytes = (m * k + n * k + m * n) * size
    plain = tail == "y" and head == "x"
    return Case(name, text, m * n * k, num_bytes, target, plain, precision)


def mlp(m: int, k: int, n: int) -> Case:
    text = MLP.format(m=m, k=k, n=n, device=DEVICE)
    num_bytes = (2 * m * k + 2 * n * k + m * n) * 4
    return Case(f"MLP {m}x{k} -> {n} -> {k}, float32", text, 2 * m * n * k, num_bytes, plain=False)


@contextmanager
def allowed(case: Case) -> Iterator[None]:
    """While torch's float32 products may be as imprecise as the case says."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(case.precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def matmul(
    name: str, a: tuple[int, ...], b: tuple[int, ...], dtype: str = F32, turned: bool = False
) -> Case:
    text = MATMUL.format(
        a=a, b=b, dtype=dtype, tail="y", turned=".mT" if turned else "", device=DEVICE
    )
    *batches, m, k = a
    n = (b[-2] if turned else b[-1]) if len(b) > 1 else 1
    count = batches[0] if batches else 1
    size = 4 if dtype == F32 else 2
    num_bytes = count * (m * k + n * k + m * n) * size
    return Case(f"{name}, {dtype[6:]}", text, count * m * n * k, num_bytes)


def founding(name: str) -> Case:
    """An example whose product is that of 1024x8192 by 8192x8192."""
    m, k, n = 1024, 8192, 8192
    text = (ROOT / "examples" / f"{name}.py").read_text()
    return Case(name, text, m * n * k, 4 * (m * k + n * k + m * n), plain=False)


CASES = (
    *map(founding, ("linear_swish", "linear_sigmoid", "linear_relu")),
    linear(1024, 8192, 8192),
    linear(1024, 8192, 8192, tail=SIX),
    linear(1024, 8192, 8192, head="torch.nn.functional.gelu(x)"),
    mlp(1024, 8192, 8192),
    linear(4096, 4096, 4096),
    linear(8192, 8192, 8192),
    *(linear(rows, 8192, 8192) for rows in (1, 4, 16, 64, 256)),
    matmul("16x8192 by 8192x8192", (16, 8192), (8192, 8192)),
    matmul("4096^3, both live", (4096, 4096), (4096, 4096)),
    matmul("8192^3, both live", (8192, 8192), (8192, 8192)),
    matmul("1024x8192x8192, both live", (1024, 8192), (8192, 8192)),
    matmul("batched 128 x (512x1024 by 1024x2048)", (128, 512, 1024), (128, 1024, 2048)),
    matmul("32768x64 by 64x32768", (32768, 64), (64, 32768)),
    matmul("256x524288 by 524288x256", (256, 524288), (524288, 256)),
    matmul("16384x12288, K of 16, by the transpose", (16384, 16), (12288, 16), turned=True),
    matmul("16384x12288, K of 32, by the transpose", (16384, 32), (12288, 32), turned=True),
    matmul("16384x12289, K of 5", (16384, 5), (5, 12289)),
    linear(16384, 16, 12288, tail=SIX),
    matmul("8205x2949 by 2949x5921", (8205, 2949), (2949, 5921)),
    matmul("matrix-vector 2048x1048576", (2048, 1048576), (1048576,)),
    linear(1024, 8192, 8192, target="sm_80"),
    linear(1024, 8192, 8192, precision="high"),
    linear(8192, 8192, 8192, precision="high"),
    linear(1024, 8192, 8192, tail=SIX, precision="high"),
    *(
        linear(rows, width, width, dtype, tail)
        for rows, width in ((1024, 8192), (4096, 4096), (8192, 8192))
        for dtype in (BF16, F16)
        for tail in ("y", SIX)
    ),
    *(linear(16384, 512, 2048, dtype, SIX) for dtype in (BF16, F16)),
    linear(16384, 1024, 4096, BF16, SIX),
    linear(16384, 2048, 8192, BF16, SIX),
)


def main(
    only: Annotated[str, typer.Option(help="Only cases whose name has one of a|b|c in it.")] = "",
    baselines: Annotated[str, typer.Option(help="Of compile and autotune.")] = "",
    budget_s: Annotated[float, typer.Option(help="Seconds for each way of each case.")] = 0.15,
    seconds: Annotated[float, typer.Option(help="No case begins after so many.")] = math.inf,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    """Writes <out>/products-<device>.json."""
    start = time.perf_counter()
    cases = [case for case in CASES if any(part in case.name for part in only.split("|"))]
    with tempfile.TemporaryDirectory() as folder:
        files = [emit(case, Path(folder, f"product{i}.py")) for i, case in enumerate(cases)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda pair: build(*pair), files))
        run = {**run_of_today(), "copy_gbps": (copy_gbps := copy_bandwidth())}
        names = [case.name for case in CASES]
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"products-{slug(device_name())}.json"
        for case, (model, new) in zip(cases, files, strict=True):
            if time.perf_counter() - start > seconds:
                break
            with allowed(case):
                result = measured(case, model, new, baselines, budget_s, copy_gbps)
            print(line_of(result), flush=True)
            keep(path, run, run, result, names)
    print(f"written to {path}")


def emit(case: Case, model: Path) -> tuple[Path, Path]:
    """Writes the model file and what the compiler makes of it."""
    model.write_text(case.source)
    new = model.with_stem(f"{model.stem}_new")
    with allowed(case):
        compiled = compile_file(model, Options(target=case.target))
    new.write_text(compiled.text)
    new.with_suffix(".plan").write_text("\n".join(row.reason for row in compiled.main_rows))
    return model, new


def build(model: Path, new: Path) -> None:
    """A file without kernels of ours has nothing to build."""
    if "_CUDA" in new.read_text():
        build_in_child(new, model, "cuda", Options())


def measured(
    case: Case, model: Path, new: Path, baselines: str, budget_s: float, copy_gbps: float
) -> dict[str, Any]:
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    original = import_file(model, f"{model.stem}_original")
    inputs, given = [x.cuda() for x in original.get_inputs()], original.get_init_inputs()
    with torch.device("cuda"):
        eager = original.Model(*given).eval()
        ours = import_file(new, f"{new.stem}_module").ModelNew(*given).eval()
    ours.load_state_dict(eager.state_dict())
    ways: dict[str, Callable[[], Any]] = {
        "eager_ms": lambda: eager(*inputs),
        "opweld_ms": lambda: ours(*inputs),
    }
    with torch.no_grad():
        compiled, failed = compiled_ways(eager, inputs, baselines)
        ways |= compiled
        errors = {
            name: error_of(ways[name](), eager, inputs) if case.plain else None
            for name in ("eager_ms", "opweld_ms")
        }
        head = {"name": case.name, **runs_that_differ(ways["opweld_ms"])}
        if refused := why_refused(head):
            return {**head, "problem": refused, "error": errors["opweld_ms"]}
        times = time_interleaved(ways, torch.device("cuda"), budget_s)
    medians = {name: samples.median for name, samples in times.items()}
    best_s = medians["opweld_ms"] / 1e3
    return {
        **head,
        **medians,
        **failed,
        "spread": {name: [s.p10, s.p90] for name, s in times.items()},
        "tflops": 2 * case.num_terms / best_s / 1e12,
        "share_of_copy": case.num_bytes / best_s / 1e9 / copy_gbps,
        "error": errors["opweld_ms"],
        "eager_error": errors["eager_ms"],
        "plan": new.with_suffix(".plan").read_text(),
    }


def error_of(result: Any, model: torch.nn.Module, inputs: list[Any]) -> dict[str, float]:
    """Of the first rows and columns."""
    if hasattr(model, "fc"):
        a, b = inputs[0], model.fc.weight.mT
        bias = model.fc.bias.double()
    else:
        a, b, bias = inputs[0], inputs[1], 0.0
        b = b[:, None] if b.ndim == 1 else b
        b = b.mT if b.shape[-2] != a.shape[-1] else b
    if a.ndim == 3:
        a, b, result = a[0], b[0], result[0]
    rows, columns = a[:64].double(), b[:, :256].double()
    exact = rows @ columns + (bias[:256] if isinstance(bias, torch.Tensor) else bias)
    size = rows.abs() @ columns.abs()
    found = result.reshape(a.shape[0], -1)[:64, :256].double()
    relative = (found - exact).abs() / size
    return {"rms": relative.square().mean().sqrt().item(), "max": relative.max().item()}


def copy_bandwidth() -> float:
    """GB/s of a device-to-device copy of 1 GiB, bytes read and written."""
    source = torch.empty(2**28, device="cuda")
    to = torch.empty_like(source)
    times = time_interleaved({"copy": lambda: to.copy_(source)}, torch.device("cuda"), 0.1)
    return 2 * source.nbytes / times["copy"].median / 1e6


def line_of(result: dict[str, Any]) -> str:
    if "problem" in result:
        return f"{result['name']}: {result['problem']}"
    ours, eager = result["opweld_ms"], result["eager_ms"]
    others = "".join(
        f", {name[:-3]} {result[name]:.4g}"
        for name in ("compile_ms", "autotune_ms")
        if name in result
    )
    error = (
        result["error"]
        and f", rms error {result['error']['rms'] / result['eager_error']['rms']:.2f}x"
    )
    return (
        f"{result['name']}: {ours:.4g} ms, eager {eager:.4g}{others}: {eager / ours:.2f}x, "
        f"{result['tflops']:.0f} TFLOP/s, "
        f"{100 * result['share_of_copy']:.0f} % of copy{error or ''}"
        f" | {result['plan'][:120]}"
    )


if __name__ == "__main__":
    typer.run(main)
