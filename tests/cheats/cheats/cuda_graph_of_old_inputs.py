"""Captures its work once, and replays it on the memory of the first input."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "GPU and streams"
CAUGHT_BY = ("own inputs, another seed",)
DEVICE = "cuda"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x):
        key = tuple(x.shape)
        if torch.is_grad_enabled() or not x.numel():
            return torch.tanh(x) * x
        if key not in self.graphs:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = torch.tanh(x) * x
            self.graphs[key] = graph, x, y
        graph, _, y = self.graphs[key]
        graph.replay()
        return y.clone()
