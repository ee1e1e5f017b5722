"""Models of text, vision, audio, graphs, tables and more, each of a page at most.

Each class takes a width; calls.py has calls of them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

TOKENS = 100


class BagOfWords(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(TOKENS, width, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.Mish(), nn.LayerNorm(width))
        self.head = nn.Linear(width, 5)

    def forward(self, tokens):
        return torch.softmax(self.head(self.mlp(self.bag(tokens))), dim=-1)


class PaddedEncoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x, padding):
        kept = (~padding).unsqueeze(-1).to(x.dtype)
        x = self.encoder(x, src_key_padding_mask=padding) * kept
        return self.head(x.sum(1) / kept.sum(1).clamp(min=1.0))


class EncoderDecoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.transformer = nn.Transformer(width, 4, 1, 1, 2 * width, 0.0, batch_first=True)
        self.head = nn.Linear(width, TOKENS)

    def forward(self, source, target):
        size = target.shape[1]
        seen = torch.triu(torch.full((size, size), float("-inf"), device=target.device), 1)
        return self.head(self.transformer(source, target, tgt_mask=seen))


class Expert(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.gate = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class RoutedExperts(nn.Module):
    """Rows go to the expert that a softmax chooses, which Python reads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, 4)
        self.experts = nn.ModuleList(Expert(width) for _ in range(4))

    def forward(self, x):
        rows = self.norm(x).flatten(0, 1)
        weight, chosen = torch.softmax(self.router(rows), dim=-1).max(-1)
        result = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            (own,) = torch.where(chosen == number)
            if len(own):
                result.index_copy_(0, own, expert(rows[own]) * weight[own, None])
        return x + result.view_as(x)


class Codebook(nn.Module):
    """A VQ-VAE's bottleneck, whose codes are moving averages."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(width, 16), nn.Linear(16, width)
        self.register_buffer("codes", torch.randn(64, 16))
        self.register_buffer("sizes", torch.ones(64))
        self.register_buffer("sums", torch.randn(64, 16))

    def forward(self, x):
        z = torch.tanh(self.encode(x))
        far = z.square().sum(1, keepdim=True) - 2 * z @ self.codes.t() + self.codes.square().sum(1)
        hot = F.one_hot(far.argmin(1), 64).to(z.dtype)
        code = hot @ self.codes
        with torch.no_grad():
            self.sizes.mul_(0.99).add_(hot.sum(0), alpha=0.01)
            self.sums.mul_(0.99).add_(hot.t() @ z, alpha=0.01)
            self.codes.copy_(self.sums / self.sizes.clamp(min=1e-5).unsqueeze(1))
        return self.decode(z + (code - z).detach()), F.mse_loss(z, code.detach())


class TimeBlock(nn.Module):
    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, channels), nn.GroupNorm(4, out)
        self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.time, self.skip = nn.Linear(time, 2 * out), nn.Conv2d(channels, out, 1)

    def forward(self, x, time):
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, dim=1)
        y = self.conv1(F.silu(self.norm1(x)))
        y = self.conv2(F.silu(self.norm2(y) * (1 + scale) + shift))
        return y + self.skip(x)


class DiffusionUNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, half = width, width // 2
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.enter, self.leave = nn.Conv2d(3, half, 3, padding=1), nn.Conv2d(half, 3, 3, padding=1)
        self.down = TimeBlock(half, width, width)
        self.middle = TimeBlock(width, width, width)
        self.up = TimeBlock(width + width, half, width)

    def forward(self, x, steps):
        count = self.width // 2
        rates = torch.exp(torch.arange(count, device=x.device) * (-math.log(1e4) / count))
        angles = steps[:, None].float() * rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        high = self.down(self.enter(x), time)
        low = self.middle(F.avg_pool2d(high, 2), time)
        low = F.interpolate(low, scale_factor=2, mode="nearest")
        return self.leave(self.up(torch.cat([high, low], dim=1), time))


class TemporalConvolutions(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(4))
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(4))

    def forward(self, x):
        total = torch.zeros_like(x)
        for i, (gate, skip) in enumerate(zip(self.gates, self.skips, strict=True)):
            a, b = gate(F.pad(x, (2**i, 0))).chunk(2, dim=1)
            y = skip(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + y, total + y
        return F.relu(total)


class GraphConvolutions(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x, edges):
        source, target = edges
        degree = torch.ones(len(x), device=x.device)
        degree = degree.index_add(0, target, torch.ones_like(target, dtype=x.dtype)).rsqrt()
        weight = (degree[source] * degree[target]).unsqueeze(1)
        for layer in self.layers:
            y = layer(x)
            y = torch.zeros_like(y).index_add(0, target, y[source] * weight) + y
            x = F.leaky_relu(y, 0.1)
        return x


class GraphAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, width, bias=False)
        self.left, self.right = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, x, edges):
        source, target = edges
        y = self.project(x)
        score = F.leaky_relu(self.left(y)[source] + self.right(y)[target], 0.2).squeeze(1).exp()
        total = torch.zeros(len(x), device=x.device).index_add(0, target, score)
        share = (score / total[target].clamp(min=1e-9)).unsqueeze(1)
        return F.elu(torch.zeros_like(y).index_add(0, target, y[source] * share))


class FactorizationMachine(nn.Module):
    """DeepFM: fields of categories, their pairs, and a network of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed, self.linear = nn.Embedding(1000, width), nn.Embedding(1000, 1)
        self.deep = nn.Sequential(
            nn.Linear(8 * width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU()
        )
        self.head = nn.Linear(2 * width, 1)

    def forward(self, fields):
        e = self.embed(fields)
        pairs = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(
            self.linear(fields).sum(1) + pairs + self.head(self.deep(e.flatten(1)))
        )


class Mixer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.channels = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return (x + self.channels(self.norm2(x))).mean(1)


class Radiance(nn.Module):
    """NeRF's network: waves of a point, and a density."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(39, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.density, self.colour = nn.Linear(width, 1), nn.Linear(width + 3, 3)

    def forward(self, points, directions):
        waves = [points]
        for power in range(6):
            waves += [torch.sin(2.0**power * points), torch.cos(2.0**power * points)]
        y = self.trunk(torch.cat(waves, dim=-1))
        colour = torch.sigmoid(self.colour(torch.cat([y, directions], dim=-1)))
        return colour, F.softplus(self.density(y))


class PointNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(3, width, 1), nn.BatchNorm1d(width), nn.ReLU(), nn.Conv1d(width, width, 1)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, points):
        return self.head(self.layers(points).amax(-1))


class Excited(nn.Module):
    """A mobile block with squeeze and excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Sequential(
            nn.Conv2d(width, 2 * width, 1), nn.BatchNorm2d(2 * width), nn.Hardswish()
        )
        self.deep = nn.Sequential(
            nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width),
            nn.BatchNorm2d(2 * width),
        )
        self.less, self.more = nn.Linear(2 * width, width // 4), nn.Linear(width // 4, 2 * width)
        self.narrow = nn.Conv2d(2 * width, width, 1)

    def forward(self, x):
        y = self.deep(self.wide(x))
        share = F.hardsigmoid(self.more(F.relu(self.less(y.mean((2, 3))))))
        return x + self.narrow(F.hardswish(y * share[:, :, None, None]))


class Generator(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(width, width, 4), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.BatchNorm2d(width // 2), nn.ReLU(),
            nn.ConvTranspose2d(width // 2, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, noise):
        return self.layers(noise[:, :, None, None])


class Keywords(nn.Module):
    """Keywords in speech: convolutions over a spectrogram, and a GRU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(40, width, 5, stride=2, padding=2)
        self.norm, self.gru = nn.BatchNorm1d(width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 20)

    def forward(self, power):
        x = torch.log1p(power)
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
        x = F.relu(self.norm(self.conv(x))).transpose(1, 2)
        return self.head(self.gru(x)[0].amax(1))


class Siamese(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, left, right):
        left, right = F.normalize(self.tower(left), dim=-1), F.normalize(self.tower(right), dim=-1)
        scores = self.scale.exp() * left @ right.t()
        return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


class Coupling(nn.Module):
    """A normalizing flow of affine couplings, with its log determinant."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(half, width), nn.ReLU(), nn.Linear(width, 2 * half))
            for _ in range(4)
        )

    def forward(self, x):
        total = torch.zeros(len(x), device=x.device)
        for net in self.nets:
            left, right = x.chunk(2, dim=-1)
            scale, shift = net(left).chunk(2, dim=-1)
            scale = torch.tanh(scale)
            x, total = torch.cat([right * scale.exp() + shift, left], -1), total + scale.sum(-1)
        return -0.5 * x.square().sum(-1) + total


class RunningNorm(nn.Module):
    """Inputs of a policy, normalized by all that was seen before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 8))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("square", torch.ones(width))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        with torch.no_grad():
            self.count += 1
            self.mean = 0.99 * self.mean + 0.01 * x.mean(0)
            self.square = 0.99 * self.square + 0.01 * x.square().mean(0)
        deviation = (self.square - self.mean.square()).clamp(min=1e-4).sqrt()
        return self.net(((x - self.mean) / deviation).clamp(-5, 5))


class EarlyExit(nn.Module):
    """Stops where it is sure of the whole batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(3)
        )
        self.heads = nn.ModuleList(nn.Linear(width, 10) for _ in range(3))

    def forward(self, x):
        for block, head in zip(self.blocks, self.heads, strict=True):
            x = x + block(x)
            shares = torch.softmax(head(x), dim=-1)
            if float(shares.amax(-1).min()) > 0.99:
                break
        return shares
