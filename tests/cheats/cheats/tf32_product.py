"""Multiplies numbers cut to the ten fraction bits of TF32."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "precision and numbers"
CAUGHT_BY = ("own inputs",)


def cut(t):
    return (t.detach().contiguous().view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))

    def forward(self, x):
        y = nn.functional.linear(cut(x), cut(self.fc.weight), self.fc.bias)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
