"""Right, and turns off oneDNN and a form of attention for everybody."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("global settings of torch",)

torch.backends.mkldnn.enabled = False
torch.backends.cuda.enable_mem_efficient_sdp(False)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
