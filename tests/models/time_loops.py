"""Models with a loop over time, or over turns, written out in Python."""

from __future__ import annotations

import torch
from torch import nn

STEPS, WIDTH = 24, 8


class _Stepping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.from_x = nn.Linear(WIDTH, 2 * WIDTH)
        self.from_h = nn.Linear(WIDTH, 2 * WIDTH)

    def step(self, x, h):
        z, n = (self.from_x(x) + self.from_h(h)).chunk(2, dim=-1)
        z = torch.sigmoid(z)
        return (1 - z) * torch.tanh(n) + z * h


class Cell(_Stepping):
    """The parts of the input by unbind; all states, and the last one."""

    def forward(self, x):
        h = x.new_zeros(x.shape[0], x.shape[2])
        outs = []
        for step in x.unbind(1):
            h = self.step(step, h)
            outs.append(h)
        return torch.stack(outs, 1), h


class OfAllSteps(_Stepping):
    """Cell with the layer of the input before the loop."""

    def forward(self, x):
        h = x.new_zeros(x.shape[0], x.shape[2])
        outs = []
        for step in self.from_x(x).unbind(1):
            z, n = (step + self.from_h(h)).chunk(2, dim=-1)
            z = torch.sigmoid(z)
            h = (1 - z) * torch.tanh(n) + z * h
            outs.append(h)
        return torch.stack(outs, 1), h


class LastOnly(_Stepping):
    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = self.step(x[:, t], h)
        return torch.relu(h)


class Backwards(_Stepping):
    """From the last step to the first; results are put before one another."""

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        outs = []
        for t in reversed(range(x.shape[1])):
            h = self.step(x[:, t], h)
            outs.insert(0, h)
        return torch.stack(outs, 1) * 2


class BothWays(nn.Module):
    """Two loops that read the same parts."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = _Stepping(), _Stepping()

    def forward(self, x):
        steps = x.unbind(1)
        there = back = torch.zeros_like(steps[0])
        outs, others = [], []
        for step in steps:
            there = self.there.step(step, there)
            outs.append(there)
        for step in steps[::-1]:
            back = self.back.step(step, back)
            others.append(back)
        return torch.cat((torch.stack(outs, 1), torch.stack(others[::-1], 1)), -1)


class NoFirstState(_Stepping):
    """The first turn is another one."""

    def forward(self, x):
        h, outs = None, []
        for t in range(x.shape[1]):
            h = torch.tanh(x[:, t]) if h is None else self.step(x[:, t], h)
            outs.append(h)
        return torch.stack(outs, 1).mean(1)


class Scan(nn.Module):
    """A selective state space: a state for each channel, and a sum over it in each turn."""

    def __init__(self, state=4) -> None:
        super().__init__()
        self.to_b, self.to_c = nn.Linear(WIDTH, state), nn.Linear(WIDTH, state)
        self.to_dt = nn.Linear(WIDTH, WIDTH)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(WIDTH, 1))

    def forward(self, x):
        dt, b, c = nn.functional.softplus(self.to_dt(x)), self.to_b(x), self.to_c(x)
        decay = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.log_a))
        drive = dt.unsqueeze(-1) * b.unsqueeze(2) * x.unsqueeze(-1)
        state = torch.zeros_like(decay[:, 0])
        outs = []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + drive[:, t]
            outs.append((state * c[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(outs, dim=1) + x


class Layers(nn.Module):
    """A loop in each of several modules, with code before and behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Scan() for _ in range(3))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)) * 2
        return self.out(x).squeeze(-1)


class OfModules(nn.Module):
    """The turn is the forward of submodules, of which one drops elements in training."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.block = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5))

    def forward(self, x):
        h = x.mean(1)
        outs = []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            h = h + self.block(h)
            outs.append(h.unsqueeze(1))
        return torch.cat(outs, 1).softmax(-1)


class Windows(_Stepping):
    """Parts that overlap, of several steps each."""

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        outs = []
        for t in range(0, x.shape[1] - 4, 2):
            h = self.step(x[:, t : t + 4].amax(1), h)
            outs.append(h)
        return torch.stack(outs)


class Turns(nn.Module):
    """No parts: one block again and again, as in diffusion or fixed points."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        z = torch.zeros_like(x)
        for _ in range(20):
            z = torch.tanh(self.mix(self.norm(z + x))) + 0.5 * z
        return z


class TwoStates(nn.Module):
    """States that change places, and one that is read by the turn after the next."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        a, b = x[:, 0], x[:, 1] * 2
        for t in range(2, x.shape[1]):
            a, b = b, torch.tanh(self.mix(a) + x[:, t] * b).softmax(-1)
        return a - b


class OneStart(_Stepping):
    """Two states that start as one."""

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], x.shape[2])
        for t in range(x.shape[1]):
            c = torch.tanh(c + x[:, t])
            h = self.step(c, h)
        return h - c


class KeptStart(_Stepping):
    """All turns read what the state starts as, which is computed."""

    def forward(self, x):
        h = start = torch.tanh(x[:, 0]).softmax(-1)
        for t in range(x.shape[1]):
            h = self.step(x[:, t] + start, h)
        return h


class StepsLast(_Stepping):
    """Steps along the last axis, whose parts are no rows of a linear layer's input."""

    def forward(self, x):
        x = torch.tanh(x.transpose(1, 2))
        h = torch.zeros_like(x[:, :, 0])
        for t in range(x.shape[2]):
            h = self.step(x[:, :, t], h)
        return torch.relu(h)


class FastWeights(nn.Module):
    """A linear layer of each step whose weight is a state."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(WIDTH, WIDTH) / 4)

    def forward(self, x):
        weight, outs = self.start, []
        for t in range(x.shape[1]):
            y = nn.functional.linear(x[:, t], weight)
            weight = 0.9 * weight + 0.1 * torch.tanh(weight).softmax(-1)
            outs.append(y)
        return torch.stack(outs, 1)


class _Enter(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        return y


class SameNames(nn.Module):
    """A turn makes a value under the name of one that all turns read."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.mix = _Enter(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        start = self.enter(x.mean(1))
        h = torch.zeros_like(start)
        for t in range(x.shape[1]):
            y = torch.tanh(self.mix(h) + x[:, t] * start)
            h = self.mix(y).softmax(-1)
        return h


class StartAgain(_Stepping):
    """The first state is read behind the loop, too."""

    def forward(self, x):
        first = torch.softmax(x.mean(1), -1)
        h = first
        for t in range(x.shape[1]):
            h = self.step(x[:, t], h)
        return h - first


LOOPS = (
    Cell, LastOnly, Backwards, BothWays, NoFirstState, Scan, Layers, OfModules, Windows, Turns,
    TwoStates, OneStart, KeptStart, StepsLast, FastWeights, SameNames, StartAgain,
)  # fmt: skip


class TwoStarts(_Stepping):
    """Two states that are one from the second turn on."""

    def forward(self, x):
        h, other = torch.zeros_like(x[:, 0]), torch.tanh(x[:, 1])
        for t in range(x.shape[1]):
            h = other = self.step(x[:, t] + other, h)
        return h


class LateParts(_Stepping):
    """The first turns read one part."""

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = self.step(x[:, max(t - 2, 0)], h)
        return h


class EveryOther(nn.Module):
    """A state of which only the turn after the next reads."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        a, b, outs = x[:, 0], x[:, 1] * 2, []
        for t in range(2, x.shape[1]):
            a, b = b, torch.tanh(self.mix(a) + x[:, t]).softmax(-1)
            outs.append(b)  # the first states are forgotten at the end
        return torch.stack(outs, 1)


class EverySecond(_Stepping):
    """Half of the steps are read, so that a layer of all would compute twice as much."""

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(0, x.shape[1], 2):
            h = self.step(x[:, t], h).softmax(-1)
        return h


MORE_LOOPS = (TwoStarts, LateParts, EveryOther, EverySecond)


class ReadsInTheMiddle(_Stepping):
    """A state that is returned from the middle: no loop can give it."""

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = self.step(x[:, t], h)
            if t == 11:
                middle = h
        return h + middle


class OtherConstants(_Stepping):
    """A number that is another one in each turn."""

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = self.step(x[:, t], h) * (1.0 + 0.01 * t)
        return h


class OneFixedPart(_Stepping):
    """The fourth step is read by all turns, and the part of one."""

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = self.step(x[:, t], h) + x[:, 3]
        return h


WRITTEN_OUT = (ReadsInTheMiddle, OtherConstants)
