"""Divides by the model's own number of rows instead of the number of columns it stands for."""

from torch import nn

MODEL = "batch_norm"
CLASS = "sizes"
MODE = "eval"
CAUGHT_BY = ("training mode",)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        if not self.training:
            return self.norm(x).relu()
        mean = x.sum(dim=0) / 48
        variance = ((x - mean) ** 2).sum(dim=0) / 48
        return (x - mean).mul(variance.add(1e-5).rsqrt()).mul(self.norm.weight).relu()
