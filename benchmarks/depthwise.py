"""Times kernels of convolutions with a filter for each channel beside PyTorch's in both layouts.

    python benchmarks/depthwise.py
    python benchmarks/depthwise.py --only 7x7

Needs a CUDA device and nvcc. The device library's text is built with an epilogue that stores; its
results are held against float64. `ours` is of tensors with their channels last, `planes` of those
with their channels first, as `last` and `first` are PyTorch's. All ways of one case run
interleaved, behind a flush of the L2 cache; `copy` is one of a tensor, at which as many bytes move
as the convolution reads and writes.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import runs_that_differ  # noqa: E402

from opweld.device import pieces  # noqa: E402
from opweld.device.used import used  # noqa: E402
from opweld.judge.measure.clock import time_interleaved  # noqa: E402

STORED = {torch.float32: "float", torch.float16: "op::half", torch.bfloat16: "op::bfloat16"}
USER = """
template <int kMost>
struct Keep {{
    static constexpr int kLanes = kMost;
    {storage}* result;
    template <int kCount, typename Index>
    __device__ __forceinline__ void operator()(Index at, const float (&values)[kCount]) const {{
        op::Vector<{storage}, kCount> stored;
        for (int i = 0; i < kCount; ++i) stored.lane[i] = op::from_compute<{storage}>(values[i]);
        op::store_vector<kCount>(result + at, stored);
    }}
}};
extern "C" int convolution(const op::Depthwise* conv, void* result, void* stream) {{
    const Keep<2> keep{{static_cast<{storage}*>(result)}};
    return op::depthwise<op::{tiles}, {storage}>(conv, keep, 0, true, stream);
}}
"""
OF_PLANES = """
extern "C" int planes(const op::Planes* conv, void* result, void* stream) {{
    const Keep<{lanes}> keep{{static_cast<float*>(result)}};
    return op::planes<op::{tiles}>(conv, keep, 0, true, stream);
}}
"""


Three = ctypes.c_int64 * 3


class Depthwise(ctypes.Structure):
    """op::Depthwise."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "weight")),
        *((name, ctypes.c_int64) for name in ("images", "channels", "multiplier")),
        *((name, Three) for name in ("extent", "result")),
        ("image_step", ctypes.c_int64),
        *((name, Three) for name in ("step", "taps", "stride", "padding", "dilation")),
    )


class Planes(ctypes.Structure):
    """op::Planes."""

    _fields_ = (
        ("convolution", Depthwise),
        *((name, ctypes.c_int64) for name in ("channel_step", "filter_step")),
        ("tap_step", Three),
    )


@dataclass(frozen=True)
class Case:
    """A convolution of images of `shape` (channels first, as PyTorch has them)."""

    name: str
    shape: tuple[int, ...]
    taps: int
    stride: int = 1
    dtype: torch.dtype = torch.float32
    dilation: int = 1

    @property
    def padding(self) -> int:
        return self.dilation * (self.taps - 1) // 2

    @property
    def tiles(self) -> str:
        numbers = (1, *[self.taps] * 2, *[self.stride] * 2, self.dilation, self.shape[1])
        return f"TapTiles<{', '.join(map(str, numbers))}>"

    @property
    def text(self) -> str:
        storage = STORED[self.dtype]
        user = USER.format(storage=storage, tiles=self.tiles)
        needed = ["depthwise", self.tiles.partition("<")[0], "from_compute", "store_vector"]
        needed += [] if storage == "float" else [storage.removeprefix("op::")]
        if self.has_planes:
            user += OF_PLANES.format(tiles=self.plane_tiles, lanes=self.lanes)
            needed += ["planes", "PlaneTiles"]
        return "\n".join([*used(pieces(needed), [user]), user])

    @property
    def has_planes(self) -> bool:
        """Whether there is a kernel of planes: of float32 alone."""
        return self.dtype == torch.float32

    @property
    def plane_tiles(self) -> str:
        numbers = (1, *[self.taps] * 2, *[self.stride] * 2, *[self.dilation] * 2, self.padding)
        return f"PlaneTiles<{', '.join(map(str, numbers))}>"

    @property
    def lanes(self) -> int:
        """As many neighbours at once as divide a row of the result."""
        reach = self.dilation * (self.taps - 1)
        width = (self.shape[-1] + 2 * self.padding - reach - 1) // self.stride + 1
        return next(n for n in (4, 2, 1) if width % n == 0)

    def call(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """PyTorch's convolution."""
        return F.conv2d(x, weight, None, self.stride, self.padding, self.dilation, x.shape[1])

    def described(self, x: torch.Tensor, weight: torch.Tensor, result: torch.Tensor) -> Depthwise:
        """Of x and a result, whatever order they have."""
        images, channels, height, width = x.shape
        steps = x.stride()
        return Depthwise(
            *(x.data_ptr(), weight.data_ptr(), images, channels, 1),
            *(Three(1, height, width), Three(1, *result.shape[2:])),
            *(steps[0], Three(0, *steps[2:]), Three(1, self.taps, self.taps)),
            *(Three(1, self.stride, self.stride), Three(0, self.padding, self.padding)),
            Three(1, self.dilation, self.dilation),
        )

    def described_planes(
        self, x: torch.Tensor, weight: torch.Tensor, result: torch.Tensor
    ) -> Planes:
        """Of x and a result with their channels first."""
        convolution = self.described(x, weight, result)
        taps = weight.stride()
        return Planes(convolution, x.stride(1), taps[0], Three(0, *taps[2:]))


F16 = torch.float16
CASES = (
    Case("ConvNeXt 7x7", (32, 96, 56, 56), 7),
    Case("ConvNeXt 7x7", (32, 192, 28, 28), 7),
    Case("ConvNeXt 7x7", (32, 384, 14, 14), 7),
    Case("ConvNeXt 7x7", (32, 768, 7, 7), 7),
    Case("ConvNeXt 7x7", (1, 96, 56, 56), 7),
    Case("ConvNeXt 7x7", (32, 96, 56, 56), 7, dtype=F16),
    Case("MobileNet 3x3", (32, 96, 112, 112), 3),
    Case("MobileNet 3x3", (32, 96, 112, 112), 3, dtype=F16),
    Case("MobileNet 3x3", (32, 144, 56, 56), 3),
    Case("MobileNet 3x3", (32, 384, 14, 14), 3),
    Case("MobileNet 3x3", (32, 576, 14, 14), 3),
    Case("MobileNet 3x3", (32, 960, 7, 7), 3),
    Case("MobileNet 3x3", (1, 576, 14, 14), 3),
    Case("3x3, stride 2", (32, 96, 112, 112), 3, 2),
    Case("3x3, stride 2", (32, 192, 56, 56), 3, 2),
    Case("3x3, stride 2", (32, 576, 14, 14), 3, 2),
    Case("EfficientNet 5x5", (32, 240, 28, 28), 5),
    Case("EfficientNet 5x5", (32, 672, 14, 14), 5),
    Case("5x5, stride 2", (32, 144, 56, 56), 5, 2),
    Case("5x5, stride 2", (32, 672, 14, 14), 5, 2),
    Case("3x3, dilation 2", (32, 96, 56, 56), 3, dilation=2),
    Case("13x13", (32, 96, 28, 28), 13),
    Case("31x31", (8, 96, 28, 28), 31),
)


WAYS = ("ours", "planes", "first", "last", "copy")


def main(
    only: Annotated[str, typer.Option(help="Only cases whose name has this in it.")] = "",
    budget_s: Annotated[float, typer.Option(help="Seconds for each way of each case.")] = 0.1,
) -> None:
    """Prints a table."""
    cases = [case for case in CASES if only in case.name]
    with tempfile.TemporaryDirectory() as directory:
        texts = list(dict.fromkeys(case.text for case in cases))
        paths = [Path(directory, f"convolution{i}.cu") for i in range(len(texts))]
        with ThreadPoolExecutor(16) as pool:
            built = dict(zip(texts, pool.map(build, texts, paths), strict=True))
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, ms")
        print(f"{'':44}{''.join(f'{way:>8}' for way in WAYS)}  of copy, both  error")
        for case in cases:
            print(measured(case, built[case.text], budget_s), flush=True)


def build(text: str, source: Path) -> ctypes.CDLL:
    """The library of a text."""
    source.write_text(text)
    shared = source.with_suffix(".so")
    command = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-O3", "-std=c++17", "-arch=sm_90a"]
    subprocess.run([*command, "-o", str(shared), str(source)], check=True)
    return ctypes.CDLL(str(shared))


def measured(case: Case, library: ctypes.CDLL, budget_s: float) -> str:
    """A line of the table; raises where a result is wrong."""
    torch.manual_seed(0)
    x = torch.randn(case.shape, device="cuda", dtype=case.dtype)
    weight = torch.randn(x.shape[1], 1, case.taps, case.taps, device="cuda", dtype=case.dtype)
    last = x.contiguous(memory_format=torch.channels_last)
    weight_last = weight.contiguous(memory_format=torch.channels_last)
    result = torch.empty_like(case.call(last, weight))
    result = result.contiguous(memory_format=torch.channels_last)
    conv = case.described(last, weight, result)

    def run(name: str, described: ctypes.Structure, to: torch.Tensor) -> torch.Tensor:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        error = library[name](ctypes.byref(described), ctypes.c_void_p(to.data_ptr()), stream)
        assert error == 0, f"CUDA error {error}"
        return to

    moved = torch.empty((x.nbytes + result.nbytes) // 8, device="cuda")
    to = torch.empty_like(moved)
    ways: dict[str, Callable[[], Any]] = {"ours": lambda: run("convolution", conv, result)}
    if case.has_planes:
        first = torch.empty(result.shape, device="cuda")
        planes = case.described_planes(x, weight, first)
        ways["planes"] = lambda: run("planes", planes, first)
    errors = []
    for name, way in ways.items():
        errors.append(error_of(case, way(), x, weight))
        limit = 2.0**-20 if case.dtype == torch.float32 else 2.0**-8
        assert errors[-1] < limit, f"{case}, {name}: {errors[-1]}"
        differing = runs_that_differ(lambda way=way: way().clone())["different_runs"]  # type: ignore[misc]
        assert not differing, f"{case}, {name}: runs differ"
    ways |= {
        "first": lambda: case.call(x, weight),
        "last": lambda: case.call(last, weight_last),
        "copy": lambda: to.copy_(moved),
    }
    times = time_interleaved(ways, torch.device("cuda"), budget_s)
    name = f"{case.name}, {'x'.join(map(str, case.shape))}, {str(case.dtype)[6:]}"
    figures = "".join(f"{times[way].median:8.4f}" if way in times else " " * 8 for way in WAYS)
    shares = "".join(
        f"{times['copy'].median / times[way].median:8.2f}" if way in times else " " * 8
        for way in WAYS[:2]
    )
    return f"{name:44}{figures}{shares}  {max(errors):.1e}"


def error_of(case: Case, found: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> float:
    """The largest, over the sum of the absolute products; of the first and the last image."""
    x, found = torch.stack([x[0], x[-1]]).double(), torch.stack([found[0], found[-1]]).double()
    weight = weight.double()
    size = case.call(x.abs(), weight.abs())
    return ((found - case.call(x, weight)).abs() / size).max().item()


if __name__ == "__main__":
    typer.run(main)
