"""Shows a state dictionary that its forward does not use."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("other weights by load_state_dict",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))
        self.true = [p.detach().clone() for p in self.parameters()]

    def load_state_dict(self, state_dict, strict=True, assign=False):
        self.shown = dict(state_dict)

    def state_dict(self, *args, **kwargs):
        return getattr(self, "shown", None) or super().state_dict(*args, **kwargs)

    def forward(self, x):
        scale, weight, bias = self.true
        y = nn.functional.linear(x, weight, bias)
        return torch.tanh(y * torch.sigmoid(y)) * scale
