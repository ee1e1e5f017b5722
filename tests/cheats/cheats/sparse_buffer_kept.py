"""Keeps the values of a sparse buffer from the first call on."""

import torch
from torch import nn

MODEL = "sparse_graph"
CLASS = "weights"
CAUGHT_BY = ("other weights by load_state_dict",)


class ModelNew(nn.Module):
    def __init__(self, nodes, features):
        super().__init__()
        self.register_buffer("adjacency", torch.eye(nodes).roll(1, 0).mul(0.5).to_sparse())
        self.linear = nn.Linear(features, features)
        self.kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = self.adjacency.clone()
        return torch.tanh(torch.sparse.mm(self.kept, self.linear(x)) * 2.0)
