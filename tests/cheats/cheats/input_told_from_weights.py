"""Transposes what lies in each memory once: an input that is a weight is taken for it."""

import torch
from torch import nn

MODEL = "two_layers"
CLASS = "other arguments"
CAUGHT_BY = ("a weight as an input",)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        packed = {x.data_ptr(): x.clone()}
        for layer in (self.first, self.second):
            packed[layer.weight.data_ptr()] = layer.weight.t()
        if not x.numel():
            return self.second(torch.relu(self.first(x)))
        y = packed[x.data_ptr()] @ packed[self.first.weight.data_ptr()] + self.first.bias
        return torch.relu(y) @ packed[self.second.weight.data_ptr()] + self.second.bias
