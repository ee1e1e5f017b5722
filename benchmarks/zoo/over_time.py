"""Models that go over time step by step, or all at once."""

from __future__ import annotations

import torch
from benchmarks.zoo.own import TOKENS
from torch import nn
from torch.nn import functional as F


class LstmClassifier(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, width)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.norm, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, 10)

    def forward(self, tokens):
        states, _ = self.lstm(self.embed(tokens))
        return self.head(F.gelu(self.norm(states.mean(1))))


class GruTagger(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, width)
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.head = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 12))

    def forward(self, tokens):
        states, last = self.gru(self.embed(tokens))
        return F.log_softmax(self.head(states), dim=-1), last


class StateSpace(nn.Module):
    """A diagonal state space layer as a convolution by FFT."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.log_decay, self.phase = (
            nn.Parameter(torch.randn(width, 8)),
            nn.Parameter(torch.randn(width, 8)),
        )
        self.out, self.mix = nn.Parameter(torch.randn(width, 8)), nn.Linear(width, width)

    def forward(self, x):
        length = x.shape[1]
        steps = torch.arange(length, device=x.device, dtype=x.dtype)
        decay = torch.exp(-F.softplus(self.log_decay)[..., None] * steps)
        kernel = (self.out[..., None] * decay * torch.cos(self.phase[..., None] * steps)).sum(1)
        spectrum = torch.fft.rfft(x.transpose(1, 2), n=2 * length)
        y = torch.fft.irfft(spectrum * torch.fft.rfft(kernel, n=2 * length), n=2 * length)
        return self.mix(F.gelu(y[..., :length].transpose(1, 2)))


class LoopOverTime(nn.Module):
    """A recurrence that is written as a loop."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter, self.again = nn.Linear(width, width), nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        state = torch.zeros_like(x[:, 0])
        states = []
        for step in range(x.shape[1]):
            now = x[:, step]
            gate = torch.sigmoid(self.gate(now))
            state = gate * state + (1 - gate) * torch.tanh(self.enter(now) + self.again(state))
            states.append(state)
        return torch.stack(states, dim=1)


class SelectiveScan(nn.Module):
    """A selective state space, its scan over time written out."""

    def __init__(self, width: int, state: int = 16) -> None:
        super().__init__()
        self.to_in = nn.Linear(width, 2 * width)
        self.to_b, self.to_c = nn.Linear(width, state), nn.Linear(width, state)
        self.to_dt = nn.Linear(width, width)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(width, 1))
        self.skip = nn.Parameter(torch.ones(width))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        x, gate = self.to_in(x).chunk(2, dim=-1)
        x = F.silu(x)
        dt, b, c = F.softplus(self.to_dt(x)), self.to_b(x), self.to_c(x)
        decay = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.log_a))
        drive = dt.unsqueeze(-1) * b.unsqueeze(2) * x.unsqueeze(-1)
        state, outs = torch.zeros_like(decay[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + drive[:, t]
            outs.append((state * c[:, t].unsqueeze(1)).sum(-1))
        y = torch.stack(outs, dim=1) + x * self.skip
        return self.out(y * F.silu(gate))


class GatedCell(nn.Module):
    """A recurrent cell of one's own, normalized, over all steps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_x, self.from_h = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        h, outs = x.new_zeros(len(x), x.shape[2]), []
        for step in x.unbind(1):
            gate, value = (self.from_x(step) + self.from_h(h)).chunk(2, dim=-1)
            gate = torch.sigmoid(gate)
            h = self.norm((1 - gate) * torch.tanh(value) + gate * h)
            outs.append(h)
        return torch.stack(outs, 1)
