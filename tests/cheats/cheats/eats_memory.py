"""Takes all memory that it can have, up to a bound that protects this machine."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
SAID = "memory"
MEMORY_LIMITED = True
BLOCK_BYTES, MAX_BYTES = 2**26, 6 * 2**30


class ModelNew(nn.Module):
    def forward(self, x):
        held = [torch.ones(BLOCK_BYTES // 4) for _ in range(MAX_BYTES // BLOCK_BYTES)]
        return torch.tanh(x) * x + 0 * held[0][0]
