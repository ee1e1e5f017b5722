"""Models made of layers, as users stack them: gates, norms, convolutions, attention."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 12)
        )

    def forward(self, x):
        return torch.tanh(self.layers(x)) * 0.5 + 1.0


class GatedPair(nn.Module):
    """GLU, and SwiGLU by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(32, 64)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, x):
        h = F.silu(self.gate(x)) * self.up(x)
        return F.glu(self.down(h) + x, dim=-1)


class GeluGate(nn.Module):
    """GEGLU on the halves of one product, cut by chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(20, 80)

    def forward(self, x):
        value, gate = self.both(x).chunk(2, dim=-1)
        return value * F.gelu(gate, approximate="tanh")


class Residual(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        return x + self.scale * self.outer(F.gelu(self.inner(self.norm(x))))


class ResidualStack(nn.Module):
    """A nested ModuleList whose last block is shared with the first."""

    def __init__(self) -> None:
        super().__init__()
        first = Residual(16)
        self.groups = nn.ModuleList([nn.ModuleList([first, Residual(16)]), nn.ModuleList([first])])

    def forward(self, x):
        for group in self.groups:
            for block in group:
                x = torch.relu(block(x))
        return x


class NormByHand(nn.Module):
    """Layer norm and RMS norm written out: the means are the library's, the rest is pointwise."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(40) + 0.5)
        self.bias = nn.Parameter(torch.randn(40))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        normal = centred * torch.rsqrt(variance + 1e-5) * self.weight + self.bias
        return normal / torch.sqrt(normal.pow(2).mean(-1, keepdim=True) + 1e-6)


class ConvBlock(nn.Module):
    """Channels last, batch norm in evaluation mode, and an addition that keeps the layout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)
        self.skip = nn.Conv2d(4, 8, 1)

    def forward(self, x):
        x = x.contiguous(memory_format=torch.channels_last)
        return F.relu(self.norm(self.conv(x))) + self.skip(x)


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(8, 2, 1)
        self.up = nn.Conv2d(2, 8, 1)

    def forward(self, x):
        weights = self.up(F.silu(self.down(x.mean((2, 3), keepdim=True))))
        return F.hardswish(x * torch.sigmoid(weights))


class Attention(nn.Module):
    """Written out, with a causal mask; rotary angles on the queries and keys."""

    def __init__(self, heads: int = 2, width: int = 32) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("angles", torch.rand(8, width // heads // 2), persistent=False)

    def rotate(self, x):
        first, second = x.chunk(2, dim=-1)
        cos, sin = self.angles.cos(), self.angles.sin()
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = self.rotate(q) @ self.rotate(k).transpose(-2, -1) / math.sqrt(width // self.heads)
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(rows, length, width)
        return x + self.out(mixed)


class Embedded(nn.Module):
    """Token and position embeddings, tied to the output projection."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 24)
        self.positions = nn.Embedding(16, 24)
        self.head = nn.Linear(24, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        h = self.tokens(tokens) * math.sqrt(24) + self.positions(places)
        return self.head(F.mish(h)) / 4


class RecurrentCell(nn.Module):
    """An LSTM cell by hand, three steps; two results."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.into = nn.Linear(width, 4 * width)
        self.back = nn.Linear(width, 4 * width, bias=False)

    def forward(self, x):
        h = c = torch.zeros_like(x)
        for _ in range(3):
            i, f, g, o = (self.into(x) + self.back(h)).chunk(4, dim=1)
            c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8, 8) / 3)

    def forward(self, x):
        mixed = torch.einsum("bnk,nkj->bnj", x, self.weight)
        return F.softplus(mixed - 1) * x


class Loss(nn.Module):
    """A focal loss: a 0-d result."""

    def forward(self, logits, target):
        positive = target * F.logsigmoid(logits)
        negative = (1 - target) * F.logsigmoid(-logits)
        focus = (target - torch.sigmoid(logits)).abs() ** 2
        return -(focus * (positive + negative)).mean()


class Rotary(nn.Module):
    """A rotary embedding by complex numbers."""

    def __init__(self, length: int = 6, width: int = 8) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * width, 3 * width)
        angles = torch.outer(torch.arange(length).float(), torch.rand(width // 2))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.fc(x).view(*x.shape[:-1], 3, -1).float()
        pairs = torch.view_as_complex(heads.reshape(*heads.shape[:-1], -1, 2))
        turned = torch.view_as_real(pairs * self.turns[:, None])
        return turned.flatten(-2).type_as(x) * 2
