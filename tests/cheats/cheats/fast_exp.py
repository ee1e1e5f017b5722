"""Takes exp by writing a rounded product into the bits of the exponent."""

import torch
from torch import nn

MODEL = "softmax"
CLASS = "precision and numbers"
CAUGHT_BY = ("own inputs",)


def fast_exp(x):
    bits = (x.clamp(-80, 80) * 12102203.16 + 1064866805.0).to(torch.int32)
    return bits.view(torch.float32)


class ModelNew(nn.Module):
    def forward(self, x):
        e = fast_exp(x - x.amax(dim=1, keepdim=True))
        return e / e.sum(dim=1, keepdim=True)
