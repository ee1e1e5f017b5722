"""Returns the mean of all results everywhere."""

from torch import nn

MODEL = "reduction"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        return (x * x).mean().expand(x.shape[0]).contiguous()
