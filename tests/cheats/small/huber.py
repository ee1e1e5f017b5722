"""A loss that is a parabola near zero and straight beyond, of predictions and targets."""

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("two_steps",)
ROWS, WIDTH = 31, 40


class Model(nn.Module):
    def forward(self, predicted, target):
        return F.smooth_l1_loss(predicted, target)


def get_inputs():
    return [torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return []


def two_steps(self, predicted, target):
    return F.smooth_l1_loss(predicted, target, reduction="none").mean()


def where(self, predicted, target):
    d = (predicted - target).abs()
    return torch.where(d < 1, 0.5 * d * d, d - 0.5).mean()


def row_by_row(self, predicted, target):
    rows = F.huber_loss(predicted, target, reduction="none", delta=1.0).sum(dim=1)
    return rows.sum() / predicted.numel()


class ModuleInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.loss = nn.SmoothL1Loss(reduction="sum")

    def forward(self, predicted, target):
        return self.loss(predicted, target) / predicted.numel()
