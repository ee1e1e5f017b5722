"""Takes tanh as the ratio of two short polynomials, as fast-math libraries do."""

from torch import nn

MODEL = "pointwise"
CLASS = "precision and numbers"
CAUGHT_BY = ("own inputs",)


class ModelNew(nn.Module):
    def forward(self, x):
        c = x.clamp(-4.97, 4.97)
        s = c * c
        top = c * (135135.0 + s * (17325.0 + s * (378.0 + s)))
        return top / (135135.0 + s * (62370.0 + s * (3150.0 + 28.0 * s))) * x
