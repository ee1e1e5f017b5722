"""A linear layer with dropout behind it, in training."""

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("functional",)
ROWS, WIDTH = 25, 32


class Model(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        return self.drop(torch.tanh(self.fc(x)))


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, 44]


def functional(self, x):
    y = torch.tanh(F.linear(x, self.fc.weight, self.fc.bias))
    return F.dropout(y, self.drop.p, self.training)


def mask_by_hand(self, x):
    y = torch.tanh(self.fc(x))
    if not self.training:
        return y
    keep = 1 - self.drop.p
    return y * torch.empty_like(y).bernoulli_(keep).div_(keep)


def native(self, x):
    y, _ = torch.native_dropout(torch.tanh(self.fc(x)), self.drop.p, self.training)
    return y


class NoModuleForIt(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.p = 0.25

    def forward(self, x):
        y = torch.addmm(self.fc.bias, x, self.fc.weight.t()).tanh()
        return torch.dropout(y, self.p, self.training)
