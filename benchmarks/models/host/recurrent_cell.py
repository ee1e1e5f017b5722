"""A long short-term memory's cell, written out, for eight steps."""

import torch
from torch import nn

WIDTH, STEPS = 128, 8


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_input = nn.Linear(WIDTH, 4 * WIDTH)
        self.of_state = nn.Linear(WIDTH, 4 * WIDTH, bias=False)

    def forward(self, x, hidden, cell):
        gates = self.of_input(x) + self.of_state(hidden)
        enter, forget, new, leave = gates.chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(cell), cell


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = Cell()

    def forward(self, x):
        hidden = cell = x.new_zeros(x.shape[0], WIDTH)
        for step in range(STEPS):
            hidden, cell = self.cell(x[:, step], hidden, cell)
        return hidden


def get_inputs(batch=16):
    return [torch.randn(batch, STEPS, WIDTH)]


def get_init_inputs():
    return []
