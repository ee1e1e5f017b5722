"""Takes the last of several largest elements where the original takes the first."""

from torch import nn

MODEL = "integers"
CLASS = "precision and numbers"
CAUGHT_BY = ("constant rows | sparse values",)


class ModelNew(nn.Module):
    def forward(self, x):
        last = x.shape[1] - 1 - x.flip(1).argmax(dim=1)
        return last, (x > 0.5).sum(dim=1), x > 0
