"""Its constructor takes no arguments where the original's takes two."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "other arguments"
SAID = "TypeError"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(192, 72)
        self.scale = nn.Parameter(torch.ones(72))

    def forward(self, x):
        y = self.fc(x)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
