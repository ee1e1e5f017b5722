"""Reads the sparse buffer at each call, in another product."""

import torch
from torch import nn

MODEL = "sparse_graph"


class ModelNew(nn.Module):
    def __init__(self, nodes, features):
        super().__init__()
        self.register_buffer("adjacency", torch.eye(nodes).roll(1, 0).mul(0.5).to_sparse())
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.tanh((self.adjacency @ self.linear(x)).mul(2.0))
