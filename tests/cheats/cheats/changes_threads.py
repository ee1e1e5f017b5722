"""Right, and takes all but one thread from torch."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("global settings of torch",)

torch.set_num_threads(torch.get_num_threads() + 1)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
