"""Reads where a sparse input has elements, and takes all of them for ones."""

import torch
from torch import nn

MODEL = "sparse_input"
CLASS = "work left out"
CAUGHT_BY = ("normal values",)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x, adjacency):
        ones = torch.ones_like(adjacency.coalesce().values())
        pattern = torch.sparse_coo_tensor(adjacency.coalesce().indices(), ones, adjacency.shape)
        return torch.tanh(torch.sparse.mm(pattern, self.linear(x)) * 2.0)
