"""Holds the same numbers in another layout than the original."""

import torch
from torch import nn

MODEL = "sparse_graph"
CLASS = "weights"
CAUGHT_BY = ("same parameters from the same seed",)
SAID = r"adjacency is torch.float32 .48, 48. in ModelNew, torch.sparse_coo"


class ModelNew(nn.Module):
    def __init__(self, nodes, features):
        super().__init__()
        self.register_buffer("adjacency", torch.eye(nodes).roll(1, 0).mul(0.5))
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.tanh(self.adjacency @ self.linear(x) * 2.0)
