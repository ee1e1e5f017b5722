"""Returns its values behind torch's lazy negation."""

import torch
from torch import nn

MODEL = "pointwise"


class ModelNew(nn.Module):
    def forward(self, x):
        return torch._neg_view(-(torch.tanh(x) * x))
