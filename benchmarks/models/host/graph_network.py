"""A graph network: two rounds of messages along edges, gathered and added up by node."""

import torch
from torch import nn
from torch.nn import functional as F

NODES, EDGES, WIDTH = 256, 1024, 64


class Round(nn.Module):
    def __init__(self):
        super().__init__()
        self.message = nn.Sequential(
            nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
        )
        self.update = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, nodes, source, target):
        messages = self.message(torch.cat([nodes[source], nodes[target]], dim=-1))
        received = torch.zeros_like(nodes).index_add(0, target, messages)
        updated = F.silu(self.update(torch.cat([nodes, received], dim=-1)))
        return self.norm(nodes + updated)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rounds = nn.ModuleList([Round(), Round()])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, nodes, source, target):
        for each in self.rounds:
            nodes = each(nodes, source, target)
        return self.head(nodes.mean(dim=0))


def get_inputs():
    return [
        torch.randn(NODES, WIDTH),
        torch.randint(NODES, (EDGES,)),
        torch.randint(NODES, (EDGES,)),
    ]


def get_init_inputs():
    return []
