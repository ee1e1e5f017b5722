"""Has a backward that forgets a factor where the model is in training."""

import torch
from torch import nn

MODEL = "batch_norm"
CLASS = "gradients"
CAUGHT_BY = ("gradients in training mode",)
MODE = "eval"


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        if not self.training or not torch.is_grad_enabled():
            return torch.relu(self.norm(x))
        y = self.norm(x)
        return torch.relu(x * (y / x).detach())
