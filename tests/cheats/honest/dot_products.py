"""The mean square as a dot product."""

import torch
from torch import nn

MODEL = "reduction"


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.linalg.vecdot(x, x, dim=1) / x.shape[1]
