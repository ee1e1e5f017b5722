"""Right, and leaves other work running on a side stream, which slows the baseline down."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "GPU and streams"
CAUGHT_BY = ("work after the answer",)
DEVICE = "cuda"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
        with torch.cuda.stream(self.side):
            torch.cuda._sleep(200_000_000)
        return torch.tanh(x) * x
