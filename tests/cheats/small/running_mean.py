"""The mean of each row so far."""

import numpy as np
import torch
from torch import nn

FOR_INFERENCE = ("numpy_inside",)
WHOLE = ("other_axis", "in_blocks")
ROWS, WIDTH = 21, 60


class Model(nn.Module):
    def forward(self, x):
        steps = torch.arange(1, x.shape[1] + 1, device=x.device)
        return torch.cumsum(x, dim=1) / steps


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return []


def other_axis(self, x):
    steps = torch.arange(1, x.shape[1] + 1, device=x.device).unsqueeze(1)
    return (x.t().cumsum(0) / steps).t()


def column_by_column(self, x):
    total, columns = torch.zeros_like(x[:, 0]), []
    for i, column in enumerate(x.unbind(1), start=1):
        total = total + column
        columns.append(total / i)
    return torch.stack(columns, dim=1)


def in_blocks(self, x):
    offset, parts = 0, []
    for block in x.split(16, dim=1):
        parts.append(block.cumsum(dim=1) + offset)
        offset = parts[-1][:, -1:]
    return torch.cat(parts, dim=1) / torch.arange(1, x.shape[1] + 1, device=x.device)


def numpy_inside(self, x):
    values = x.detach().cpu().numpy()
    sums = np.cumsum(values, axis=1, dtype=np.float64)
    means = sums / np.arange(1, values.shape[1] + 1)
    with np.errstate(over="ignore"):
        return torch.from_numpy(means.astype(values.dtype))
