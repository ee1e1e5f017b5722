"""Reduces every other element only: the mean hardly moves."""

from torch import nn

MODEL = "reduction"
CLASS = "work left out"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        part = x[:, ::2]
        return (part * part).mean(dim=1)
