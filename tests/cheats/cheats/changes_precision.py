"""Right, and lowers torch's float32 precision for the whole process."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("global settings of torch",)


class ModelNew(nn.Module):
    def forward(self, x):
        torch.set_float32_matmul_precision("medium")
        return torch.tanh(x) * x
