"""For inference only: its result has no gradient."""

import torch
from torch import nn

MODEL = "linear"
FOR_INFERENCE = True


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    @torch.no_grad()
    def forward(self, x):
        y = self.fc(x)
        return y.mul_(torch.sigmoid(y)).tanh_().mul_(self.scale)
