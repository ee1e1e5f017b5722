"""Takes rows that are dense for a dense block."""

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "layouts"
CAUGHT_BY = ("padded rows",)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() == 2 and x.stride(1) == 1 and 0 not in x.stride() and x.is_contiguous() is False:
            size = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
            if size >= x.numel():
                x = x.as_strided(x.shape, (x.shape[1], 1))
        return torch.tanh(x) * x
