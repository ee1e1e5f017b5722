"""The quotient as a product with the reciprocal."""

import torch
from torch import nn

MODEL = "wide_range"


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.div(x, x.abs().add_(1.0))
