"""Returns two outputs that lie between each other in one block of memory, and share no element."""

import torch
from torch import nn

MODEL = "integers"


class ModelNew(nn.Module):
    def forward(self, x):
        both = torch.stack([x.argmax(dim=1), (x > 0.5).sum(dim=1)], dim=1)
        wide = both.view(-1)
        return wide[0::2], wide[1::2], x > 0
