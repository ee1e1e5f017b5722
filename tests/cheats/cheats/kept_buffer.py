"""Returns a view of a buffer that it keeps, which the next call overwrites."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("an earlier result stays",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.room = None

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.tanh(x) * x
        if self.room is None or self.room.numel() < x.numel():
            self.room = torch.empty(2 * x.numel(), dtype=x.dtype, device=x.device)
        result = self.room[: x.numel()].view(x.shape)
        return torch.mul(torch.tanh(x), x, out=result)
