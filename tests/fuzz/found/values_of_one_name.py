"""Two walks over a row each keep a value, which each of them calls the same."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        a = torch.exp(x)
        b = torch.exp(x / a.sum(dim=1, keepdim=True))
        return (a * b * b.sum(dim=1, keepdim=True)).amin(dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(17, 63)]


def get_init_inputs():
    return []
