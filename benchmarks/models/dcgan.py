"""The generator of a DCGAN (Radford et al., 2015): images of 64x64 from 100 numbers each."""

import torch
from torch import nn

NOISE = 100
WIDTHS = (512, 256, 128, 64)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels_in = [], NOISE
        for index, channels in enumerate(WIDTHS):
            stride, padding = (1, 0) if index == 0 else (2, 1)
            layers += [
                nn.ConvTranspose2d(channels_in, channels, 4, stride, padding, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(inplace=True),
            ]
            channels_in = channels
        layers += [nn.ConvTranspose2d(channels_in, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def forward(self, noise):
        return self.layers(noise[:, :, None, None])


def get_inputs(batch=2):
    return [torch.randn(batch, NOISE)]


def get_init_inputs():
    return []
