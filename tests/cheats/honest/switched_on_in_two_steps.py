"""Results require gradients whether or not the caller asks for them, as the original's do."""

import torch
from torch import nn

MODEL = "switched_on"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64))

    def forward(self, x):
        with torch.enable_grad():
            return torch.tanh(torch.mul(x, self.scale)).add(1)
