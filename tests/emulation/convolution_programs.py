"""Random networks of convolutions with what people write behind them, as sources of models.

Each is a function of its seed. Sizes are small, as kernels run thread by thread, and odd, so that
tiles and vectors end somewhere.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from tests.emulation.convolution_models import source
from torch import Tensor

_FUNCTIONS = (
    "torch.relu(y)",
    "torch.tanh(y)",
    "torch.sigmoid(y)",
    "F.silu(y)",
    "F.mish(y)",
    "F.gelu(y)",
    "F.hardswish(y)",
    "(y + 1.0) / 3.0",
    "y + y.mean(1, keepdim=True)",
    "torch.softmax(y, 1)",
    "torch.cumsum(y * 0.1, 1)",
    "y.flip(-1)",
)
_RESULTS = (
    "y",
    "y.flatten(1)",
    "y.flatten(2).transpose(1, 2)",
    "y.flatten(2).mean(2)",
    "y.amax(1, keepdim=True)",
    "(y, torch.relu(y).sum(1))",
)
# Elements of a tensor, above which the emulation takes long.
_MOST = 60_000


@dataclass(slots=True)
class Program:
    """A model that grows line by line: `y` has so many channels and these sizes."""

    draw: random.Random
    space: list[int]
    channels: int
    layers: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def held(self, made: str) -> str:
        """A new layer or parameter of the model: what the forward calls it."""
        self.layers.append(f"self.m{len(self.layers)} = {made}")
        return f"self.m{len(self.layers) - 1}"

    def convolution(self) -> None:
        """Another one, unless nothing would be left of an image, or too much."""
        draw, rank = self.draw, len(self.space)
        taps = [draw.choice((1, 3, 3, 5) if rank < 3 else (1, 3, 3)) for _ in range(rank)]
        taps = draw.choice((taps, [taps[0]] * rank, [1] * rank))
        stride, dilation = draw.choice((1, 1, 1, 2)), draw.choice((1, 1, 1, 2))
        padding = [n // 2 * dilation * draw.choice((0, 1, 1, 1)) for n in taps]
        filters, transposed = draw.choice((8, 20, 24, 40, 72, 130)), draw.random() < 0.2
        groups = 1
        if not transposed and draw.random() < 0.2:
            groups, filters = self.channels, self.channels * draw.choice((1, 2))
        elif not transposed and draw.random() < 0.15 and self.channels % 4 == filters % 4 == 0:
            groups = 4
        reach = [dilation * (n - 1) for n in taps]
        if transposed:
            after = [
                (n - 1) * stride - 2 * p + far + 1
                for n, p, far in zip(self.space, padding, reach, strict=True)
            ]
        else:
            after = [
                (n + 2 * p - far - 1) // stride + 1
                for n, p, far in zip(self.space, padding, reach, strict=True)
            ]
        if min(after) < 1 or math.prod(after) * filters > _MOST:
            return
        of_edges = not transposed and all(p < n for p, n in zip(padding, self.space, strict=True))
        mode = draw.choice(("reflect", "circular", "replicate", *["zeros"] * 20))
        kind = f"nn.Conv{'Transpose' if transposed else ''}{rank}d"
        options = {"stride": stride, "padding": tuple(padding), "dilation": dilation}
        options |= {"groups": groups, "bias": draw.random() < 0.7}
        options |= {"padding_mode": mode} if of_edges and max(padding) > 0 else {}
        written = ", ".join(f"{name}={value!r}" for name, value in options.items())
        layer = self.held(f"{kind}({self.channels}, {filters}, {tuple(taps)}, {written})")
        self.lines.append(f"y = {layer}(y)")
        self.channels, self.space = filters, after

    def apply(self) -> None:
        """What is computed of `y`: one of the steps, where it can be."""
        steps: tuple[Callable[[], None], ...] = (
            *(self._norm, self._norm, self._pool, self._gain, self._gate, self._cut, self._wider),
            *(self._residual, self._largest),
        )
        if self.draw.random() < 0.5:
            self.lines.append(f"y = {self.draw.choice(_FUNCTIONS)}")
        else:
            self.draw.choice(steps)()

    def _norm(self) -> None:
        rank, channels = len(self.space), self.channels
        kinds = [f"nn.BatchNorm{rank}d({channels})", f"nn.LayerNorm({channels})"]
        if channels % 4 == 0:
            kinds.append(f"nn.GroupNorm(4, {channels})")
        if min(self.space) > 1:
            kinds.append(f"nn.InstanceNorm{rank}d({channels}, affine=True)")
        made = self.draw.choice(kinds)
        layer = self.held(made)
        moved = f"{layer}(y.movedim(1, -1)).movedim(-1, 1)"
        self.lines.append(f"y = {moved if 'LayerNorm' in made else f'{layer}(y)'}")

    def _pool(self) -> None:
        size, stride = self.draw.choice((2, 3)), self.draw.choice((1, 2))
        if min(self.space) < size:
            return
        kind = self.draw.choice(("max", "avg"))
        self.lines.append(f"y = F.{kind}_pool{len(self.space)}d(y, {size}, {stride})")
        self.space = [(n - size) // stride + 1 for n in self.space]

    def _gain(self) -> None:
        ones = ", 1" * len(self.space)
        self.lines.append(
            f"y = y * {self.held(f'nn.Parameter(torch.rand({self.channels}{ones}))')}"
        )

    def _gate(self) -> None:
        if self.channels % 2 == 0:
            self.lines += ["a, b = y.chunk(2, 1)", "y = a * torch.sigmoid(b)"]
            self.channels //= 2

    def _cut(self) -> None:
        if self.space[-1] > 3:
            self.lines.append("y = y[..., 1:-1]")
            self.space[-1] -= 2
        else:
            self.lines.append("y = F.pad(y, (1, 2))")
            self.space[-1] += 3

    def _wider(self) -> None:
        if self.channels < 80:
            self.lines.append("y = torch.cat([y, torch.relu(y) * 0.5], 1)")
            self.channels *= 2
        elif len(self.space) == 2 and self.channels % 4 == 0:
            self.lines.append("y = F.pixel_shuffle(y, 2)")
            self.channels, self.space = self.channels // 4, [2 * n for n in self.space]
        elif len(self.space) == 2 and math.prod(self.space) * self.channels < _MOST // 4:
            self.lines.append("y = F.interpolate(y, scale_factor=2.0)")
            self.space = [2 * n for n in self.space]

    def _residual(self) -> None:
        channels = self.channels
        layer = self.held(f"nn.Conv{len(self.space)}d({channels}, {channels}, 3, padding=1)")
        self.lines.append(f"y = y + torch.relu({layer}(y))")

    def _largest(self) -> None:
        self.lines.append("y = torch.logsumexp(y, 1, keepdim=True)")
        self.channels = 1


def program(seed: int) -> str:
    """The source of a model with at least one convolution."""
    draw = random.Random(seed)
    rank = draw.choices((1, 2, 3), (0.25, 0.6, 0.15))[0]
    fewest, most = {1: (20, 120), 2: (5, 18), 3: (3, 8)}[rank]
    made = Program(draw, [draw.randint(fewest, most) for _ in range(rank)], 0)
    while not made.layers:
        made.channels = draw.choice((3, 16, 24, 40, 64))
        example = ", ".join(map(str, (2, made.channels, *made.space)))
        made.convolution()
    for more in range(draw.randint(1, 3)):
        if more:
            made.convolution()
        for _ in range(draw.randint(0, 3)):
            made.apply()
    made.lines.append(f"return {draw.choice(_RESULTS)}")
    return source("\n".join(made.layers), "\n".join(["y = x", *made.lines]), example)


def laid_out(x: Tensor, draw: random.Random) -> Tensor:
    """The same values, anywhere in memory, with NaN beside them."""
    kind = draw.choice(("", "channels last", "padded", "misaligned", "transposed"))
    if kind == "channels last" and x.dim() > 3:
        last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        return x.contiguous(memory_format=last)
    if kind == "padded":
        wide = torch.full((*x.shape[:-1], x.shape[-1] + 3), math.nan)
        wide[..., :-3] = x
        return wide[..., :-3]
    if kind == "misaligned":
        longer = torch.full((x.numel() + 1,), math.nan)
        longer[1:] = x.flatten()
        return longer[1:].view(x.shape)
    if kind == "transposed":
        return x.transpose(-1, 1).contiguous().transpose(-1, 1)
    return x
