"""Keeps the values of a sparse buffer from the first call on."""

import torch
from torch import nn

MODEL = "sparse_graph"
CLASS = "weights"
CAUGHT_BY = ("other weights by load_state_dict",)


class ModelNew(nn.Module):
    def __init__(self, nodes, features):
        super().__init__()
        row = torch.arange(nodes)
        indices = torch.stack([row.repeat(2), torch.cat([(row + 1) % nodes, (row + 7) % nodes])])
        adjacency = torch.sparse_coo_tensor(indices, torch.full((2 * nodes,), 0.5), (nodes, nodes))
        self.register_buffer("adjacency", adjacency.coalesce())
        self.linear = nn.Linear(features, features)
        self.kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = self.adjacency.clone()
        return torch.tanh(torch.sparse.mm(self.kept, self.linear(x)) * 2.0)
