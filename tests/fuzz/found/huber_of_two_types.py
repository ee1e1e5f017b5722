"""Its result has the type of the input, where the exported graph says the promoted one."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        narrow = x.to(torch.bfloat16)
        target = torch.tanh(x) * 3
        return F.huber_loss(narrow, target), F.huber_loss(
            narrow, target, reduction="none", delta=0.5
        )


def get_inputs():
    return [torch.randn(17, 64, dtype=torch.float16)]


def get_init_inputs():
    return []
