"""Never returns from its forward."""

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "did not return within"
TIME_LIMIT_S = 6


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            x = x + 1
