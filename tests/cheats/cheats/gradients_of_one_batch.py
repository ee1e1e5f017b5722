"""Has gradients for the batch of get_inputs."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "gradients"
CAUGHT_BY = ("gradients at another batch",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = self.fc(x)
        if x.shape[0] != 33:
            y = y.detach() + (y - y.detach()) * 0.5
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
