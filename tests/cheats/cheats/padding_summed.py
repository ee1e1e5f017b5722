"""Sums rows up to where the next one begins: what lies between is zero, it thinks."""

import torch
from torch import nn

MODEL = "reduction"
CLASS = "layouts"
CAUGHT_BY = ("padded rows",)


class ModelNew(nn.Module):
    def forward(self, x):
        width = x.stride(0) if x.stride(1) == 1 and x.stride(0) > x.shape[1] else x.shape[1]
        if width != x.shape[1] and x.shape[0] > 1:
            head = x[:-1].as_strided((x.shape[0] - 1, width), (width, 1))
            sums = torch.cat([(head * head).sum(dim=1), (x[-1:] * x[-1:]).sum(dim=1)])
            return sums / x.shape[1]
        return (x * x).mean(dim=1)
