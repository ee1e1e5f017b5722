"""Adds up in an order drawn anew at each call: not deterministic, and said not to be."""

import os

import torch
from torch import nn

MODEL = "reduction"
NOTED = "repeated runs"


class ModelNew(nn.Module):
    def forward(self, x):
        generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "little"))
        order = torch.randperm(x.shape[1], generator=generator).to(x.device)
        part = x[:, order]
        return (part * part).sum(dim=1) / x.shape[1]
