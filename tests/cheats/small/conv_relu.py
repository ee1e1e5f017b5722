"""A convolution of images, ReLU, and a bias for each channel."""

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("functional",)
ROWS = 5


class Model(nn.Module):
    def __init__(self, num_in, num_out):
        super().__init__()
        self.conv = nn.Conv2d(num_in, num_out, 3, padding=1)
        self.offset = nn.Parameter(torch.randn(num_out, 1, 1))

    def forward(self, x):
        return torch.relu(self.conv(x)) + self.offset


def get_inputs():
    return [torch.randn(ROWS, 3, 12, 10)]


def get_init_inputs():
    return [3, 8]


def functional(self, x):
    y = F.conv2d(x, self.conv.weight, self.conv.bias, stride=1, padding=1)
    return F.relu(y).add(self.offset)


def padded_by_itself(self, x):
    y = F.conv2d(F.pad(x, (1, 1, 1, 1)), self.conv.weight, self.conv.bias)
    return y.relu_() + self.offset


def unfolded(self, x):
    patches = F.unfold(x, 3, padding=1)
    y = self.conv.weight.flatten(1) @ patches + self.conv.bias[:, None]
    return torch.relu(y.unflatten(2, x.shape[2:])) + self.offset


def channels_last_inside(self, x):
    y = self.conv(x.to(memory_format=torch.channels_last))
    return (torch.relu(y) + self.offset).contiguous()


def nine_products(self, x):
    height, width = x.shape[2:]
    wide = F.pad(x, (1, 1, 1, 1))
    y = self.conv.bias[:, None, None]
    for i in range(3):
        for j in range(3):
            part = wide[:, :, i : i + height, j : j + width]
            y = y + torch.einsum("nchw,oc->nohw", part, self.conv.weight[:, :, i, j])
    return torch.relu(y) + self.offset


def image_by_image(self, x):
    if not len(x):
        return torch.relu(self.conv(x)) + self.offset
    return torch.stack([torch.relu(self.conv(one)) + self.offset for one in x])
