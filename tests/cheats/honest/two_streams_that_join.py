"""Splits its work over a side stream that waits for the current one and is waited for."""

import torch
from torch import nn

MODEL = "pointwise"
DEVICE = "cuda"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        current = torch.cuda.current_stream()
        y = torch.tanh(x)
        self.side.wait_stream(current)
        with torch.cuda.stream(self.side):
            product = y * x
        y.record_stream(self.side)
        current.wait_stream(self.side)
        product.record_stream(current)
        return product
