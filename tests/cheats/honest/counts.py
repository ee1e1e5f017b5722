"""Integer outputs by other functions."""

import torch
from torch import nn

MODEL = "integers"


class ModelNew(nn.Module):
    def forward(self, x):
        positive = torch.gt(x, 0)
        return torch.max(x, dim=1).indices, torch.count_nonzero(x > 0.5, dim=1), positive
