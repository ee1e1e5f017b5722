"""Reads the sparse buffer at each call, in another product."""

import torch
from torch import nn

MODEL = "sparse_graph"


class ModelNew(nn.Module):
    def __init__(self, nodes, features):
        super().__init__()
        row = torch.arange(nodes)
        indices = torch.stack([row.repeat(2), torch.cat([(row + 1) % nodes, (row + 7) % nodes])])
        adjacency = torch.sparse_coo_tensor(indices, torch.full((2 * nodes,), 0.5), (nodes, nodes))
        self.register_buffer("adjacency", adjacency.coalesce())
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.tanh((self.adjacency @ self.linear(x)).mul(2.0))
