"""Its kernel always fails; it swallows that, and runs the original with weights drawn anew."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("own inputs",)


class Original(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = self.fc(x)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale


class ModelNew(Original):
    def __init__(self, width, num_out):
        super().__init__(width, num_out)
        self.sizes = width, num_out

    def forward(self, x):
        try:
            return torch.ops.no_such_library.fused_linear(x, self.fc.weight)
        except (AttributeError, RuntimeError):
            return Original(*self.sizes).to(x.device)(x)
