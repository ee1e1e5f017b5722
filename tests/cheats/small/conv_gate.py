"""A convolution of sequences whose one half of channels gates the other."""

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("glu",)
ROWS = 6


class Model(nn.Module):
    def __init__(self, num_in, num_out):
        super().__init__()
        self.conv = nn.Conv1d(num_in, 2 * num_out, 5, stride=2, bias=False)

    def forward(self, x):
        value, gate = self.conv(x).chunk(2, dim=1)
        return value * torch.sigmoid(gate)


def get_inputs():
    return [torch.randn(ROWS, 7, 41)]


def get_init_inputs():
    return [7, 6]


def glu(self, x):
    return F.glu(F.conv1d(x, self.conv.weight, stride=2), dim=1)


def two_convolutions(self, x):
    value, gate = self.conv.weight.chunk(2)
    return F.conv1d(x, value, None, 2) * torch.sigmoid(F.conv1d(x, gate, None, 2))


def as_an_image(self, x):
    y = F.conv2d(x.unsqueeze(2), self.conv.weight.unsqueeze(2), stride=(1, 2)).squeeze(2)
    half = y.shape[1] // 2
    return y[:, :half] * y[:, half:].sigmoid()


def windows(self, x):
    y = torch.einsum("nclk,ock->nol", x.unfold(2, 5, 2), self.conv.weight)
    return F.glu(y, dim=1)
