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
        row = torch.arange(nodes)
        indices = torch.stack([row.repeat(2), torch.cat([(row + 1) % nodes, (row + 7) % nodes])])
        adjacency = torch.sparse_coo_tensor(indices, torch.full((2 * nodes,), 0.5), (nodes, nodes))
        self.register_buffer("adjacency", adjacency.to_dense())
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.tanh(self.adjacency @ self.linear(x) * 2.0)
