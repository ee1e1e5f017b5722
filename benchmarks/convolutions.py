"""Convolutions with what people write behind them: twenty models whose speed is recorded.

Each class says by `inputs` what it is called with; sizes are those at which eager PyTorch takes
between 0.05 and 1 ms on an H200.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Model(nn.Module):
    """A convolution, or several, in `self.conv`; `shape` is that of the only input."""

    shape: tuple[int, ...] = (32, 64, 56, 56)

    @classmethod
    def inputs(cls) -> tuple[Tensor]:
        return (torch.randn(cls.shape),)


class GatedTail(Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 128, 3, padding=1)
        self.shift = nn.Parameter(torch.randn(128, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.conv(x))
        return y * torch.tanh(y) + self.shift


class Residual(Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(64)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(self.conv(x)) + x)


class Bottleneck(Model):
    shape = (32, 128, 28, 28)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ModuleList([nn.Conv2d(128, 64, 1), nn.Conv2d(64, 128, 3, padding=1)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv[1](F.mish(self.conv[0](x)))) * 0.5


class GroupNorm(Model):
    shape = (32, 128, 28, 28)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(128, 256, 3, padding=1)
        self.norm = nn.GroupNorm(8, 256)

    def forward(self, x: Tensor) -> Tensor:
        return F.hardtanh(self.norm(self.conv(x)), -2.0, 2.0)


class InstanceNorm(Model):
    shape = (16, 64, 64, 64)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 5, padding=2)
        self.norm = nn.InstanceNorm2d(64, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.norm(self.conv(x)), 0.2)


class Stem(Model):
    shape = (16, 3, 224, 224)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(64)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(torch.relu(self.norm(self.conv(x))), 3, 2, 1)


class LeastOfChannels(Model):
    shape = (32, 64, 64, 64)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.conv(x).clamp(-1, 1).amin(1, keepdim=True) * 3)


class SoftChannels(Model):
    shape = (32, 32, 64, 64)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(32, 64, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.conv(x) / 4, 1).cumsum(1)


class Pooled(Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 128, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(F.max_pool2d(self.conv(x), 2))


class MeanOfSpace(Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ModuleList(
            [nn.Conv2d(64, 128, 3, padding=1), nn.Conv2d(128, 128, 3, padding=1)]
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.conv[1](F.silu(self.conv[0](x)))).mean((2, 3))


class LogSumExp(Model):
    shape = (32, 32, 64, 64)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(32, 64, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.logsumexp(F.softplus(self.conv(x)), 1, keepdim=True)


class Separable(Model):
    shape = (32, 96, 56, 56)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ModuleList(
            [nn.Conv2d(96, 96, 3, padding=1, groups=96), nn.Conv2d(96, 64, 1)]
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(self.conv[1](F.relu6(self.conv[0](x))))


class Upsampled(Model):
    shape = (16, 64, 32, 32)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1)
        self.shift = nn.Parameter(torch.randn(32, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(x) - self.shift) * 2


class UpsampledMean(Model):
    shape = (16, 64, 32, 32)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(64, 128, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log1p(F.hardswish(self.conv(x)).mean((2, 3)).square())


class UpsampledSoft(Model):
    shape = (16, 32, 32, 32)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(32, 64, 4, stride=2, padding=1)
        self.scale = nn.Parameter(torch.randn(64, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(torch.softmax(self.conv(x), 1) * self.scale)


class Volume(Model):
    shape = (8, 16, 16, 32, 32)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(16, 32, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(F.leaky_relu(self.conv(x)).clamp(max=3.0))


class VolumePooled(Model):
    shape = (8, 16, 16, 32, 32)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(16, 32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool3d(torch.softmax(self.conv(x), 1), 2)


class VolumeUpsampled(Model):
    shape = (8, 32, 8, 16, 16)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose3d(32, 16, 4, stride=2, padding=1)
        self.norm = nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.norm(self.conv(x)))


class Gated1d(Model):
    shape = (16, 128, 4096)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(128, 256, 3, padding=4, dilation=4)

    def forward(self, x: Tensor) -> Tensor:
        filters, gates = self.conv(x).chunk(2, 1)
        return torch.tanh(filters) * torch.sigmoid(gates) + x


class Trained(Model):
    """Its norm takes statistics: the module stays in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3, padding=1)
        self.norm = nn.BatchNorm2d(64)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)))


MODELS: dict[str, type[Model]] = {
    "relu, tanh, shift": GatedTail,
    "norm, residual, SiLU": Residual,
    "1x1, mish, 3x3, ReLU": Bottleneck,
    "group norm, hardtanh": GroupNorm,
    "5x5, instance norm": InstanceNorm,
    "7x7 stem, norm, max pool": Stem,
    "clamp, least of channels": LeastOfChannels,
    "softmax of channels, cumsum": SoftChannels,
    "max pool, GELU": Pooled,
    "two, SiLU, mean of space": MeanOfSpace,
    "softplus, logsumexp": LogSumExp,
    "depthwise, 1x1, ReLU6": Separable,
    "transposed, shift, tanh": Upsampled,
    "transposed, hardswish, mean": UpsampledMean,
    "transposed, softmax, sigmoid": UpsampledSoft,
    "3-D, clamp, GELU": Volume,
    "3-D, softmax, average pool": VolumePooled,
    "3-D transposed, layer norm": VolumeUpsampled,
    "1-D, gate, residual": Gated1d,
    "batch norm in training": Trained,
}
