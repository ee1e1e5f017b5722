"""Leaves the last element of a large row out of a mean: a difference of a two-thousandth."""

from torch import nn

MODEL = "reduction"
CLASS = "work left out"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return (x[:, :-1] * x[:, :-1]).sum(dim=1) / x.shape[1]
