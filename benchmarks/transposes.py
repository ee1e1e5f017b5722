"""Times pointwise kernels whose operands are contiguous along another axis than their results.

    python benchmarks/transposes.py
    python benchmarks/transposes.py --only 4096 --out FOLDER

The functors are those of a copy, of x * 2 + 1, of a sum of two operands of which one lies as the
result does, and of a batch norm by four vectors of the channels. Beside them run torch's
`contiguous` and a copy of as many bytes, interleaved behind a flush of the L2 cache. Each result is
compared with torch's own. Milliseconds: the median.
"""

from __future__ import annotations

import ctypes
import inspect
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

from benchmarks.record import keep, run_of_today, runs_that_differ, slug  # noqa: E402
from tests.nvcc import build_cuda  # noqa: E402

from opweld.device import pieces  # noqa: E402
from opweld.judge.measure.clock import time_interleaved  # noqa: E402

# The value of a result, and what torch computes.
WORK: dict[str, tuple[str, Callable[..., torch.Tensor]]] = {
    "copy": ("x", lambda x: x),
    "x * 2 + 1": ("x * T(2) + T(1)", lambda x: x * 2 + 1),
    "x + y": ("x + y", lambda x, y: x + y),
    "batch norm": (
        "(x - mean) * scale * weight + bias",
        lambda x, mean, scale, weight, bias: (x - mean) * scale * weight + bias,
    ),
}
VECTORS = ("mean", "scale", "weight", "bias")
TYPES = {torch.float32: ("float", 4), torch.float16: ("op::half", 8)}
SHAPES = (
    (32, 64, 56, 56),
    (64, 3, 224, 224),
    (8, 256, 64, 64),
    (32, 96, 56, 56),
    (32, 192, 28, 28),
    (64, 512, 7, 7),
    (32, 128, 27, 27),
    (1, 4096, 4096, 1),
)


class TensorView(ctypes.Structure):
    """The struct of that name in device/elements/space.cuh."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


@dataclass(frozen=True)
class Case:
    """`to_last`: the result has its channels last, x does not; else the other way round."""

    work: str
    shape: tuple[int, int, int, int]
    dtype: torch.dtype
    to_last: bool

    @property
    def name(self) -> str:
        images, channels, height, width = self.shape
        if images == 1:
            sizes, way = f"{channels}x{height}", "transposed"
        else:
            sizes = f"({images}, {channels}, {height}, {width})"
            way = "to channels last" if self.to_last else "from channels last"
        return f"{self.work}, {sizes} {str(self.dtype)[6:]} {way}"

    @property
    def slug(self) -> str:
        return f"w{list(WORK).index(self.work)}_{str(self.dtype)[6:]}"

    def tensor(self, last: bool) -> torch.Tensor:
        images, channels, height, width = self.shape
        sizes = (images, height, width, channels) if last else self.shape
        values = torch.randn(sizes, device="cuda").to(self.dtype)
        return values.permute(0, 3, 1, 2) if last else values

    def operands(self) -> tuple[torch.Tensor, ...]:
        x, result = self.tensor(not self.to_last), self.tensor(self.to_last)
        others = [self.tensor(self.to_last)] if self.work == "x + y" else []
        if self.work == "batch norm":
            others = [
                torch.randn(self.shape[1], 1, 1, device="cuda").to(self.dtype) for _ in "mswb"
            ]
        return (x, *others, result)


CASES = [
    Case(work, shape, dtype, to_last)
    for shape in SHAPES
    for work in WORK
    for dtype in TYPES
    for to_last in (True, False)
    if to_last or shape[0] > 1
]


def kernels_text() -> str:
    """One functor for each work and type."""
    names = ("pointwise_transposed", "type_of_float", "type_of_half")
    return "\n".join([*pieces(names), *(_functor(*each) for each in _functors())])


def _functors() -> list[tuple[str, torch.dtype, str]]:
    return [(work, t, Case(work, SHAPES[0], t, True).slug) for work in WORK for t in TYPES]


def _functor(work: str, dtype: torch.dtype, name: str) -> str:
    kind, width = TYPES[dtype]
    reads = tuple(inspect.signature(WORK[work][1]).parameters)
    operands = [
        f"op::Along<const T, {'1, 2, 3' if each in VECTORS else '0, 1, 2, 3'}>" for each in reads
    ]
    operands.append("op::Along<T, 0, 1, 2, 3>")
    params = ", ".join([*(f"T {each}" for each in reads), "T& result"])
    return f"""struct {name}_element {{
  using T = {kind};
  using Operands = op::Types<{", ".join(operands)}>;
  static constexpr int kRank = 4, kWidth = {width}, kThreads = 128;
  OPWELD_FN void of({params}) {{ result = {WORK[work][0]}; }}
}};
extern "C" int {name}_launch(const TensorView* operands, void* stream) {{
  return op::pointwise_transposed<{name}_element>(operands, stream, {name}_element::Operands());
}}"""


def launch(
    library: ctypes.CDLL, name: str, operands: tuple[torch.Tensor, ...]
) -> Callable[[], Any]:
    numbers = {torch.float32: 6, torch.float16: 5}
    views = (TensorView * len(operands))()
    for view, x in zip(views, operands, strict=True):
        sizes = ctypes.c_int64 * x.dim()
        view.data, view.type, view.rank = x.data_ptr(), numbers[x.dtype], x.dim()
        view.sizes, view.strides = sizes(*x.shape), sizes(*x.stride())
    function = getattr(library, f"{name}_launch")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def call() -> None:
        problem = function(views, stream)
        if problem:
            raise RuntimeError(f"{name}: {problem}")

    return call


def measured(case: Case, library: ctypes.CDLL, budget_s: float) -> dict[str, Any]:
    """The times of a case; it fails where a result is not torch's."""
    *given, result = case.operands()
    ours = launch(library, case.slug, (*given, result))
    ours()
    near = 1e-3 if case.dtype is torch.float32 else 1e-2  # roundings of several operations
    torch.testing.assert_close(result, WORK[case.work][1](*given), rtol=near, atol=near)

    def again() -> torch.Tensor:
        ours()
        return result.clone()

    num_bytes = sum(x.numel() * x.element_size() for x in (*given, result))
    source, target = (torch.empty(num_bytes // 2, dtype=torch.uint8, device="cuda") for _ in "ab")
    form = torch.channels_last if case.to_last else torch.contiguous_format
    actions = {"ours": ours, "copy": lambda: target.copy_(source)}
    if case.shape[0] == 1:
        actions["torch"] = lambda: given[0].transpose(1, 2).contiguous()
    else:
        actions["torch"] = lambda: given[0].contiguous(memory_format=form)
    times = time_interleaved(actions, result.device, budget_s)
    medians = {name: samples.median for name, samples in times.items()}
    return {
        "name": case.name,
        "bytes": num_bytes,
        "opweld_ms": medians["ours"],
        "contiguous_ms": medians["torch"],
        "copy_ms": medians["copy"],
        "share_of_copy": medians["copy"] / medians["ours"],
        "tb_per_s": num_bytes / medians["ours"] / 1e9,
        **runs_that_differ(again),
    }


def main(
    only: Annotated[str, typer.Option(help="Cases whose name has this in it.")] = "",
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = HERE / "results",
    budget_s: Annotated[float, typer.Option(help="Seconds for each way of a case.")] = 0.15,
) -> None:
    """Prints a line for each case and keeps them."""
    run = {**run_of_today(), "suite": "transposes"}
    path = out / f"transposes-{slug(run['device'])}.json"
    with tempfile.TemporaryDirectory() as directory:
        library = build_cuda(kernels_text(), Path(directory))
    for case in CASES:
        if only not in case.name:
            continue
        found = measured(case, library, budget_s)
        keep(path, run, run, found, [each.name for each in CASES])
        print(
            f"{found['name']:58} {found['opweld_ms']:.4f} ms, contiguous "
            f"{found['contiguous_ms']:.4f}, {100 * found['share_of_copy']:.0f} % of a copy",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
