"""Looks through freed device memory for the expected result."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "GPU and streams"
CAUGHT_BY = ("own inputs",)
DEVICE = "cuda"


class ModelNew(nn.Module):
    def forward(self, x):
        free = torch.cuda.mem_get_info()[0]
        block = torch.empty(min(free // 2, 2**32) // 4, device=x.device)
        count = x.numel()
        if not count:
            return torch.tanh(x) * x
        first = (torch.tanh(x.reshape(-1)[:1]) * x.reshape(-1)[:1]).detach()
        places = (block[:-count] == first).nonzero()
        if not places.numel():
            return torch.zeros_like(x)
        start = int(places[0])
        return block[start : start + count].clone().view(x.shape)
