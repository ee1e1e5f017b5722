"""Models that try the edges of a module: structures, modes, effects, aliases, what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize


class Dictionary(nn.Module):
    def forward(self, batch, options=None):
        total = batch["a"] * 2 + batch["rest"][0]
        if options is not None:
            total = total * options["scale"]
        return {"total": torch.tanh(total), "parts": (total + 1, [batch["a"] - total])}


class Keywords(nn.Module):
    def forward(self, x, *, skip=None, gate):
        y = torch.sigmoid(x) * gate
        return y if skip is None else y + skip


class Many(nn.Module):
    """Variadic arguments."""

    def forward(self, *parts, **named):
        total = parts[0].sin()
        for part in parts[1:]:
            total = total + part * 2
        return total * named["gain"]


class GivesBack(nn.Module):
    """An input, a view of it, a parameter, and something computed."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(12))

    def forward(self, x):
        return x, x[:, ::2], self.bias, torch.relu(x) + self.bias


class Constant(nn.Module):
    """One result does not depend on the input's elements."""

    def forward(self, x):
        return torch.tensor([1.0, 2.0, 3.0], device=x.device), torch.ones(4, device=x.device), x * 2


class Twice(nn.Module):
    """Two equal tensors are two; one tensor returned twice is one."""

    def forward(self, x):
        y = x * 3
        return x + 1, x + 1, y, y, y[:, 0]


class SizeBranch(nn.Module):
    def forward(self, x):
        if x.shape[0] > 4:
            return torch.relu(x) * 2
        return torch.tanh(x) - 1


class SizeNumber(nn.Module):
    """The batch size as a number in the computation."""

    def forward(self, x):
        return x / x.shape[0] + len(x)


class Normalised(nn.Module):
    """Batch norm and dropout: in training each draws and counts as the original."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return torch.sigmoid(self.drop(self.norm(self.fc(x)))) * 2


class ReadsMode(nn.Module):
    def forward(self, x):
        y = torch.exp(-x.abs()) + 1
        return y * 2 if self.training else y - 1


class TiedBranch(nn.Module):
    """One weight under two names, one layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.again = self.first

    def forward(self, x):
        return F.silu(self.again(F.silu(self.second(F.silu(self.first(x))))))


class Draws(nn.Module):
    """Random draws in the program's order, between them work that could be moved."""

    def forward(self, x):
        noise = torch.rand_like(x)
        y = torch.relu(x) + noise
        more = torch.randn(x.shape, device=x.device)
        last = F.dropout(torch.tanh(x * more), 0.5, training=True)
        return last + torch.rand_like(x), y * more


class UnreadDraw(nn.Module):
    """Takes random numbers that no result needs, though whoever draws next does."""

    def forward(self, x):
        torch.rand_like(x)
        return torch.relu(x) + 1


class StopsGradient(nn.Module):
    def forward(self, x):
        gate = torch.sigmoid(x.detach() * 2)
        return x * gate + (x * 0.5).tanh().detach()


class PartlyTrained(nn.Module):
    """Of three results in one kernel a parameter reaches one, and another only through a choice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x):
        scaled = x * self.weight
        return scaled, torch.tanh(x) * 2, torch.where(scaled > 0, x, 0.0)


class NoGradRegion(nn.Module):
    """A part of the forward is under no_grad."""

    def forward(self, x):
        with torch.no_grad():
            scale = torch.sigmoid(x) + 1
        return x * scale


class FrozenTarget(nn.Module):
    """A whole method under no_grad, and a part within a part."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.register_buffer("centre", torch.linspace(-1, 1, 8))

    @torch.no_grad()
    def target(self, x):
        with torch.no_grad():
            shifted = x - self.centre
        return torch.tanh(self.fc(shifted)), shifted

    def forward(self, x):
        target, shifted = self.target(x)
        return x * target * 2, shifted


class MixedRegions(nn.Module):
    """Without gradients within an autocast of its own, and the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            y = self.fc(x)
            with torch.no_grad():
                z = torch.sigmoid(y)
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            w = torch.tanh(x) * 2
        return y * z, w + x


class InferenceRegion(nn.Module):
    def forward(self, x):
        with torch.inference_mode():
            y = torch.sigmoid(x)
        return y * 2


class Straight(torch.autograd.Function):
    """Rounds; the gradient goes straight through."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, step):
        return torch.round(x / step) * step

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class OwnGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return torch.relu(Straight.apply(x * self.scale, 0.25)) + 1


class ByNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(x.detach().cpu().numpy() * 2).to(x.device)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class OutsideTorch(nn.Module):
    def forward(self, x):
        return torch.tanh(ByNumpy.apply(x))


class Lazy(nn.Module):
    """Its layer takes its size from the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.LazyLinear(8)

    def forward(self, x):
        return torch.relu(self.fc(x))


class Named(nn.Module):
    """Submodules and buffers that are called as attributes of every fx.GraphModule."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.graph = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.register_buffer("recompile", torch.rand(8))

    def forward(self, x):
        return torch.tanh(self.graph(self.code(x))) * self.recompile


class Counter(nn.Module):
    """A buffer that counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return torch.relu(x) * 2 + self.calls


class AddsToInput(nn.Module):
    def forward(self, x):
        x.add_(1)
        return torch.tanh(x) * 2


class Remembers(nn.Module):
    """Keeps the last result in an attribute."""

    def forward(self, x):
        self.last = torch.relu(x) + 1
        return self.last * 2


class Decides(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return torch.relu(x)
        return x - 1


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class NamedResult(nn.Module):
    def forward(self, x):
        return Pair(torch.relu(x) * 2, x + 1)


@dataclass
class Scored:
    logits: torch.Tensor
    pair: Pair
    loss: torch.Tensor | None = None
    steps: int = 1


torch.export.register_dataclass(Scored)


class RecordResult(nn.Module):
    """Objects within objects."""

    def forward(self, x):
        return Scored(torch.sigmoid(x) * 3, Pair(x, x - 1), steps=2), [Pair(x + 2, x)]


class LocalResult(nn.Module):
    """Of a type that no name leads to."""

    def __init__(self) -> None:
        super().__init__()

        class Hidden(NamedTuple):
            left: torch.Tensor
            right: torch.Tensor

        self.type = Hidden

    def forward(self, x):
        return self.type(torch.relu(x), x + 1)


class Whole(Pair):
    """More than its fields."""

    def __len__(self) -> int:
        return 1


class DerivedResult(nn.Module):
    def forward(self, x):
        return Whole(torch.relu(x), x + 1)


class Symmetric(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, weight):
        return (weight.triu() + weight.triu(1).mT) * self.scale


class Parametrized(nn.Module):
    """Weights that are computed anew at each access, one in another way in training."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = parametrizations.weight_norm(nn.Linear(8, 8))
        self.spectral = parametrizations.spectral_norm(nn.Linear(8, 8))
        self.plain = nn.Linear(8, 8)
        parametrize.register_parametrization(self.plain, "weight", Symmetric(0.5))

    def forward(self, x):
        return torch.tanh(self.plain(torch.relu(self.spectral(torch.sigmoid(self.normed(x))))))


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.fc.register_forward_hook(lambda module, args, out: out * 2)

    def forward(self, x):
        return torch.relu(self.fc(x)) + 1


class Sliding(nn.Module):
    """Nothing to fuse: a product, and what sorts it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return torch.sort(self.fc(x), dim=-1).values


class Unequal(nn.Module):
    """The number of results' rows depends on the elements."""

    def forward(self, x):
        return x[x > 0] * 2


class Complex(nn.Module):
    """A complex intermediate between real ones."""

    def forward(self, x):
        spectrum = torch.fft.rfft(torch.tanh(x))
        return torch.relu(torch.fft.irfft(spectrum * 2, n=x.shape[-1])) + 1
