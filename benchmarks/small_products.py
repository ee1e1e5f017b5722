"""Times the forms of kernels for small float32 products beside the library: what the plan's
estimates for them are fitted to (src/opweld/plan/products/squares.py).

    python benchmarks/small_products.py                    all shapes
    python benchmarks/small_products.py --only '32x512'    those whose name has it

Needs a CUDA device of Hopper's architecture and nvcc. x[m, k] by w[n, k], a bias and a GELU: each
form in one kernel of ours (tiles: three, of a weight that was split before), the library's product
alone and with the GELU. Ten calls are one CUDA graph, all forms of one shape take turns: what the
device takes, launches included, and nothing of the host. Errors are the largest against float64.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor
from torch.nn.functional import gelu, linear

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import run_of_today  # noqa: E402

from opweld.device import pieces  # noqa: E402
from opweld.device.used import used  # noqa: E402

EPILOGUE = """
struct BiasGelu {
  static constexpr int kLanes = 2;
  const float* bias;
  float* result;
  int n;
  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount]) const {
    const int column = int(at % n);
    for (int i = 0; i < kCount; ++i) {
      const float x = product[i] + bias[column + i];
      result[at + i] = 0.5f * x * (1.0f + erff(x * 0.70710678f));
    }
  }
};
"""
LAUNCHER = """
extern "C" int launch_{name}(const void* x, const void* w, int64_t m, int64_t n, int64_t k,
                      const void* bias, void* result, void* workspace, void* held, int changed,
                      void* stream) {{
  const op::Product p{{{{x, m * k, k, 1}}, {{w, n * k, k, 1}}, 1, m, n, k}};
  const BiasGelu tail{{(const float*)bias, (float*)result, int(n)}};
  return op::contract<{forms}, float>(&p, {{workspace, held, changed}}, tail, 0, 1, stream);
}}
extern "C" int64_t {name}_bytes(int64_t m, int64_t n, int64_t k, int held) {{
  const op::Product p{{{{nullptr, m * k, k, 1}}, {{nullptr, n * k, k, 1}}, 1, m, n, k}};
  using Ways = {forms};
  return held ? op::held_bytes<Ways>(&p) : op::workspace_bytes<Ways>(&p, true);
}}
"""
FEW = ("RingRows<1>", "RingRows<4>", "RingRows<8>", "SliceRows<false>")
FORMS = {
    "squares32": "op::FmaTiles<float, 32>",
    "squares64": "op::FmaTiles<float>",
    "tiles": "op::SplitTiles<op::Faithful, op::HeldOperand, op::TilesSm90>, op::FmaTiles<float>",
    "short": "op::ShortSums, op::FmaTiles<float>",
    "few": ", ".join([*(f"op::FewRows<op::{form}>" for form in FEW), "op::FmaTiles<float>"]),
}
PIECES = (
    *("contract", "product_bytes", "FmaTiles", "Faithful", "SplitTiles", "TilesSm90"),
    *("HeldOperand", "SplitSums", "ShortSums", "FewRows", "RingRows", "SliceRows"),
)
SHAPES = (
    *((32, n, k) for n, k in ((128, 64), (128, 128), (512, 512), (1024, 1024), (4096, 1024))),
    *((32, 1024, 4096), (32, 10, 128), (20, 96, 96), (128, 128, 128), (128, 512, 512)),
    *((128, 2048, 512), (256, 256, 256), (256, 1024, 1024), (384, 384, 384), (512, 512, 512)),
    *((512, 768, 768), (1024, 512, 512), (1024, 768, 768), (1024, 1024, 1024), (2048, 512, 512)),
    *((4096, 256, 256), (8192, 128, 128), (16384, 64, 64), (65536, 64, 64)),
    *((1, 128, 128), (1, 512, 512), (1, 1024, 1024), (4, 512, 512), (8, 512, 512)),
    *((16, 512, 512), (4, 2048, 2048), (16, 2048, 2048), (64, 8, 512)),
    *((32, 256, 16), (1024, 256, 32), (4096, 64, 16), (40, 4, 16)),
)
CALLS, TURNS = 10, 15


def main(
    only: Annotated[str, typer.Option(help="Only shapes whose name, as 32x512x512, has it.")] = "",
) -> None:
    run = run_of_today()
    print(f"{run['command']}\n{run['device']}, {run['date']}, {run['versions']}")
    print("microseconds of the device, and errors")
    with tempfile.TemporaryDirectory() as directory:
        library = build(Path(directory))
        for m, n, k in SHAPES:
            if only in f"{m}x{n}x{k}":
                print(line_of(library, m, n, k), flush=True)


def build(directory: Path) -> ctypes.CDLL:
    launchers = [
        LAUNCHER.format(name=name, forms=f"op::Forms<{forms}>") for name, forms in FORMS.items()
    ]
    users = [EPILOGUE, *launchers]
    source, built = directory / "forms.cu", directory / "forms.so"
    source.write_text("\n".join([*used(pieces(dict.fromkeys(PIECES)), users), *users]), "utf-8")
    flags = ["-O3", "-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "--shared"]
    command = ["nvcc", *flags, "-Xcompiler", "-fPIC", "-lcuda", "-o", str(built), str(source)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    library = ctypes.CDLL(str(built))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    for name in FORMS:
        launch, size = getattr(library, f"launch_{name}"), getattr(library, f"{name}_bytes")
        sizes = [number] * 3
        launch.argtypes = [pointer, pointer, *sizes, *[pointer] * 4, ctypes.c_int, pointer]
        size.argtypes, size.restype = [*sizes, ctypes.c_int], number
    return library


def line_of(library: ctypes.CDLL, m: int, n: int, k: int) -> str:
    torch.manual_seed(0)
    x, w, bias = (
        torch.randn(*shape, device="cuda") / shape[-1] ** 0.5 for shape in ((m, k), (n, k), (n,))
    )
    expected = gelu(linear(x.double(), w.double(), bias.double()))
    ways: dict[str, Callable[[], Tensor]] = {
        "library": lambda: linear(x, w, bias),
        "library, GELU": lambda: gelu(linear(x, w, bias)),
        **{name: way_of(library, name, x, w, bias) for name in forms_of(m, n, k)},
    }
    errors = {name: (way().double() - expected).abs().max().item() for name, way in ways.items()}
    times = timed(ways)
    figures = [
        f"{name} {times[name]:.1f} ({errors[name]:.0e})" for name in ways if name != "library"
    ]
    return f"{m}x{n}x{k}: library {times['library']:.1f}, {', '.join(figures)}"


def forms_of(m: int, n: int, k: int) -> list[str]:
    asked = {"short": k <= 32, "few": min(m, n) <= 16 and k > 32, "tiles": k > 32}
    return [name for name in FORMS if asked.get(name, True)]


def way_of(
    library: ctypes.CDLL, name: str, x: Tensor, w: Tensor, bias: Tensor
) -> Callable[[], Tensor]:
    """A call of a form, whose kept operand is made by the first one."""
    (m, k), n = x.shape, w.shape[0]
    size = getattr(library, f"{name}_bytes")
    workspace, held = (
        torch.empty(max(size(m, n, k, kept), 1), dtype=torch.uint8, device="cuda")
        for kept in (0, 1)
    )
    result = torch.full((m, n), torch.nan, device="cuda")

    def call(changed: int = 0) -> Tensor:
        stream = torch.cuda.current_stream().cuda_stream
        kept = held.data_ptr() if name == "tiles" else None
        pointers = [t.data_ptr() for t in (bias, result, workspace)]
        error = getattr(library, f"launch_{name}")(
            x.data_ptr(), w.data_ptr(), m, n, k, *pointers, kept, changed, stream
        )
        if error:
            raise SystemExit(f"{name}: CUDA error {error}")
        return result

    call(changed=1)
    return call


def timed(ways: dict[str, Callable[[], Tensor]]) -> dict[str, float]:
    graphs = {name: captured(way) for name, way in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS + 3):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn >= 3:
                times[name].append(begin.elapsed_time(end) * 1e3 / CALLS)
    return {name: statistics.median(all_of) for name, all_of in times.items()}


def captured(way: Callable[[], Tensor]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        way()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            way()
    return graph


if __name__ == "__main__":
    typer.run(main)
