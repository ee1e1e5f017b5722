"""Right, and leaves a debug mode of autograd on in the process."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("global settings of torch",)

torch.autograd.set_detect_anomaly(True)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
