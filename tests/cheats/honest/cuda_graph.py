"""Replays a CUDA graph on memory of its own, into which it copies each input."""

import torch
from torch import nn

MODEL = "pointwise"
DEVICE = "cuda"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x):
        if torch.is_grad_enabled() or not x.numel():
            return torch.tanh(x) * x
        key = tuple(x.shape)
        if key not in self.graphs:
            self.graphs[key] = self.capture(x)
        graph, given, result = self.graphs[key]
        given.copy_(x)
        graph.replay()
        return result.clone()

    def capture(self, x):
        given = torch.empty(x.shape, device=x.device)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = torch.tanh(given) * given
        return graph, given, result
