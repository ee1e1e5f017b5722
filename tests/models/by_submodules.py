"""Models that no graph holds as a whole: their submodules are fused."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 16), nn.Linear(16, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)) * 0.5)


class Routed(nn.Module):
    """Rows go to the expert of their largest score, which is read."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(8), nn.Linear(8, 4)
        self.experts = nn.ModuleList(Expert() for _ in range(4))

    def forward(self, x):
        x = self.norm(x)
        scores = torch.softmax(self.gate(x), dim=-1)
        best, y = scores.argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = best == number
            if rows.any():
                y = y.index_put((rows,), expert(x[rows]) * scores[rows, number].unsqueeze(1))
        return x + y


class Inner(nn.Module):
    """Decides by elements, below a model that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Expert(), Expert()

    def forward(self, x):
        return self.first(x) if x.sum() > 0 else self.second(x)


class Nested(nn.Module):
    """What is above the decision has no graph, what is below and beside it has."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Hardtanh())
        self.inner = Inner()

    def forward(self, x, scale: float = 2.0):
        return self.inner(self.before(x)) * scale


class Shared(nn.Module):
    """One module at two places, called by name with a mask or without."""

    def __init__(self) -> None:
        super().__init__()
        self.one = Masked()
        self.other = self.one

    def forward(self, x):
        y = self.one(x)
        if float(y.sum()) > 1e6:
            return y
        return self.other(x=y, mask=None)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, mask=None):
        y = torch.sigmoid(self.linear(x)) * 2
        return y if mask is None else y * mask


class Hooked(nn.Module):
    """A hook on one block: the others have kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Expert() for _ in range(3))
        self.blocks[1].register_forward_hook(_doubles)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def _doubles(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 2


class Counted(nn.Module):
    """A block with a norm that counts, in training, below a forward that reads a number."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())

    def forward(self, x):
        for _ in range(int(x.abs().max().item() > 0) + 1):
            x = self.block(x)
        return x


class Scale(nn.Module):
    """What tells one from another is no part of its text."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear, self.factor = nn.Linear(8, 8), factor

    def forward(self, x):
        return torch.tanh(self.linear(x) * self.factor) + 1


class Scaled(nn.Module):
    """Equal blocks of two factors; two of them are not called by the example."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Scale(2.0 if i % 2 else 0.5) for i in range(6))

    def forward(self, x):
        for block in self.blocks if x.mean() > 100 else self.blocks[:4]:
            x = block(x)
        return x


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, gate):
        return torch.tanh(self.linear(x)) * torch.sigmoid(gate)


class WritesInput(nn.Module):
    def forward(self, x):
        return torch.relu(x.mul_(2.0)) + 1


class Aliasing(nn.Module):
    """A part that is given one tensor twice, and one that writes to what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.gated, self.writes = Gated(), WritesInput()

    def forward(self, x):
        y = self.gated(x, x)
        z = y.clone()
        if float(self.writes(z).sum()) < -1e9:
            return y
        return self.gated(y, y.flip(0)) + z


class Reads(nn.Module):
    """Reads a weight of a part that it does not call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.spare = nn.Linear(8, 8), Expert()

    def forward(self, x):
        return torch.tanh(self.linear(x)) * self.spare.up.weight.mean() + 1


class Spare(nn.Module):
    """An expert that is called, and one like it inside a part that has kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.expert, self.reads = Expert(), Reads()

    def forward(self, x):
        x = self.expert(x)
        return self.reads(x) if float(x.sum()) < 1e9 else x


class Widths(nn.Module):
    """Parts of two widths."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.widen, self.wide = Expert(8), nn.Linear(8, 24), Expert(24)

    def forward(self, x):
        x = self.narrow(x)
        return self.wide(self.widen(x)) if float(x.sum()) < 1e9 else x


class Nothing(nn.Module):
    """No submodule has a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else x


FUSED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Routed, ("LayerNormNew", "ExpertNew")),
    (Nested, ("SequentialNew", "ExpertNew")),
    (Shared, ("MaskedNew",)),
    (Hooked, ("ExpertNew",)),
    (Counted, ("SequentialNew",)),
    (Scaled, ("ScaleNew", "ScaleNew_2")),
    (Aliasing, ("GatedNew",)),
    (Spare, ("ExpertNew", "ReadsNew")),
    (Widths, ("ExpertNew", "ExpertNew_2")),
)
