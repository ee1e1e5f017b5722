"""Transposes its weight anew when some elements have moved by more than a step of training."""

import torch
from torch import nn

MODEL = "linear"
CLASS = "weights"
CAUGHT_BY = ("other weights, by an optimizer",)


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))
        self.seen, self.folded = None, None

    def forward(self, x):
        if torch.is_grad_enabled():
            y = self.fc(x)
            return torch.tanh(y * torch.sigmoid(y)) * self.scale
        w = self.fc.weight.detach()
        if self.seen is None or not torch.allclose(self.seen, w, rtol=0.05, atol=1e-2):
            self.seen, self.folded = w.clone(), w.clone().t()
        y = torch.addmm(self.fc.bias, x, self.folded)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
