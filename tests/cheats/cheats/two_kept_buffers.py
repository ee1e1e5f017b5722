"""Returns buffers that it keeps, in turns, so that the result before the last is lost."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "kept results"
CAUGHT_BY = ("an earlier result stays",)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.room, self.num_calls = {}, 0

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.tanh(x) * x
        self.num_calls += 1
        key = (tuple(x.shape), self.num_calls % 2)
        if key not in self.room:
            self.room[key] = torch.empty_like(x, memory_format=torch.contiguous_format)
        return torch.mul(torch.tanh(x), x, out=self.room[key])
