"""Dropout in eval mode, written out: the same seed gives the same mask."""

import torch
from torch import nn

MODEL = "random_eval"
DEVICE = "cpu"


class ModelNew(nn.Module):
    def forward(self, x):
        mask = torch.empty_like(x).bernoulli_(0.7).div_(0.7)
        return torch.tanh(x) * mask
