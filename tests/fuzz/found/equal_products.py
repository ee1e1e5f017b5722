"""Equal products are zero beside their mean, not what is left of rounding it."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.layer_norm(x * 0.3, (16,))


def get_inputs():
    return [1e6 * torch.rand(33, 1).expand(33, 16).contiguous()]


def get_init_inputs():
    return []
