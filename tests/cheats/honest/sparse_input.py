"""Multiplies by what it is given at each call."""

import torch
from torch import nn

MODEL = "sparse_input"


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x, adjacency):
        return torch.tanh(torch.sparse.mm(adjacency, self.linear(x)).mul(2.0))
