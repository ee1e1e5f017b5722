"""Model files for the tests of emitted files: sources, as a user would write them."""

GELU = '''"""GELU in its tanh form, written out."""

import math

import torch
from torch import nn

batch_size = 16
FEATURES = 96


class Model(nn.Module):
    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


def get_inputs():
    return [torch.randn(batch_size, FEATURES)]


def get_init_inputs():
    return []
'''

LINEAR = '''"""A Linear layer, then swish, a scaling, and a tanh between two clamps."""

import torch
from torch import nn

batch_size = 8
in_features = 24
out_features = 40


class Model(nn.Module):
    def __init__(self, in_features, out_features, scale=0.5):
        super(Model, self).__init__()
        self.project = nn.Linear(in_features, out_features)
        self.scale = scale

    def forward(self, x):
        y = self.project(x)
        y = y * torch.sigmoid(y) * self.scale
        y = torch.clamp(y, min=-1.0, max=1.0)
        y = torch.tanh(y)
        return torch.clamp(y, min=-1.0, max=1.0)


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
'''

BRANCHES = '''"""Dropout, Linear, a tail with a second input and a learned gain; a dict of two."""

import torch
from torch import nn

SHAPE = (6, 20)


class Gate(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


class Model(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(features, width)
        self.gain = nn.Parameter(torch.randn(width))
        self.gate = Gate()

    def forward(self, x, skip):
        h = self.fc(self.drop(x))
        gate = self.gate(h)
        return {"sum": torch.tanh(h) * self.gain + skip, "gate": gate}


def get_inputs():
    return [torch.randn(SHAPE), torch.randn(SHAPE[0], 32)]


def get_init_inputs():
    return [SHAPE[1], 32]
'''

SOURCES = {"gelu": GELU, "linear": LINEAR, "branches": BRANCHES}
