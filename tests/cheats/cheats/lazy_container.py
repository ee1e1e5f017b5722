"""Returns a list whose items are computed when they are asked for."""

from torch import nn

MODEL = "integers"
CLASS = "deferred work"
CAUGHT_BY = ("own inputs | deferred work",)


class LateTuple(tuple):
    def __new__(cls, x):
        made = super().__new__(cls, (0, 1, 2))
        made.x = x
        return made

    def __getitem__(self, position):
        x = self.x
        return (x.argmax(dim=1), (x > 0.5).sum(dim=1), x > 0)[position]


class ModelNew(nn.Module):
    def forward(self, x):
        return LateTuple(x)
