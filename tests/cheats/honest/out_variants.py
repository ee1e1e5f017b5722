"""Allocates its result and writes to it, with a temporary kept between calls."""

import torch
from torch import nn

MODEL = "pointwise"
FOR_INFERENCE = True


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = torch.empty(0)

    def forward(self, x):
        if self.scratch.shape != x.shape or self.scratch.device != x.device:
            self.scratch = torch.empty(x.shape, device=x.device)
        with torch.no_grad():
            torch.tanh(x.detach(), out=self.scratch)
            return torch.mul(self.scratch, x.detach(), out=torch.empty_like(x))
