"""Models made of blocks of their own classes."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.fc(self.norm(x)))


class Listed(nn.Module):
    """Equal blocks, one after the other."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Chained(nn.Module):
    """A list that runs in parts, and in part twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(5)))

    def forward(self, x):
        y = self.blocks(x)
        return y + self.blocks[1:4](torch.sin(x))


class Shared(nn.Module):
    """One block under two names, called from two places and twice in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()
        self.blocks = nn.ModuleList([self.first, self.second, self.first])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.second(self.second(x))


class Reached(nn.Module):
    """The parent reads a weight of its block's, and two blocks have one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()
        self.second.fc.weight = self.first.fc.weight

    def forward(self, x):
        x = self.second(self.first(x))
        return torch.sigmoid(x @ self.first.fc.weight.t()) * 2


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x, memory, gate):
        mixed = torch.relu(self.fc(x) * gate) + memory
        return mixed, torch.sigmoid(self.fc(mixed)) * gate


class Carried(nn.Module):
    """Two values go from block to block, a third is the same for all."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Mixer() for _ in range(4))

    def forward(self, x, memory):
        gate = torch.sigmoid(x)
        for block in self.blocks:
            x, gate = block(x, memory, gate)
        return x * gate


class Swapped(nn.Module):
    """Blocks whose arguments are the results of the one before in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Mixer() for _ in range(3))

    def forward(self, x, memory):
        gate = torch.sigmoid(x)
        for block in self.blocks:
            gate, x = block(x, memory, gate)
        return x + gate


class Chosen(nn.Module):
    """One class, two graphs."""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.turned = turned
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        y = torch.relu(self.fc(x)) if self.turned else torch.tanh(self.fc(x)) * 2
        return torch.softmax(y, dim=-1)


class Choosing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Chosen(n % 2 == 1) for n in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Stage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return torch.softmax(self.fc(self.blocks(x)), dim=-1)


class Nested(nn.Module):
    """Lists of blocks that have lists of blocks; results of some are read much later."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(Stage() for _ in range(3))

    def forward(self, x):
        kept = []
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        return x + kept[0] * kept[1]


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return torch.sigmoid(x * self.factor)


class Across(nn.Module):
    """A kernel that begins in a block and ends in its caller."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.scale = nn.Linear(8, 8), Scale()

    def forward(self, x):
        return torch.exp(self.scale(self.fc(x) * 2) + x)


class Unit(nn.Module):
    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Units(nn.Module):
    """Convolutions of several strides, with statistics that are tracked in training."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.units = nn.ModuleList(Unit(4, stride) for stride in (1, 2, 1, 1))

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        for unit in self.units:
            x = unit(x)
        return x.mean(dim=(2, 3))


class Circular(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        return torch.softmax(torch.tanh(self.conv(x)) * 2, dim=-1)


class Padded(nn.Module):
    """A layer that does more than its call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Circular(), Circular()

    def forward(self, x):
        return self.second(self.first(x))


class Splitting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 16)

    def forward(self, x):
        batch = x.shape[0]
        y = self.fc(torch.exp(-x)).reshape(batch, 2, 8)
        x += 1.0
        return torch.softmax(y, dim=-1).sum(dim=1) + x


class Sized(nn.Module):
    """Blocks that read sizes, and write into what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Splitting() for _ in range(3))

    def forward(self, x):
        x = x * 2
        for block in self.blocks:
            x = block(x)
        return x


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.dropout = nn.Linear(8, 8), nn.Dropout(0.5)

    def forward(self, x):
        return x + self.dropout(torch.tanh(self.fc(x)))


class Dropping(nn.Module):
    """Blocks that draw random numbers in training."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Dropped() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
