"""A variational autoencoder without its noise: encode, decode, the loss of both parts."""

import torch
from torch import nn
from torch.nn import functional as F

PIXELS, HIDDEN, LATENT = 784, 256, 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU())
        self.mean = nn.Linear(HIDDEN, LATENT)
        self.log_variance = nn.Linear(HIDDEN, LATENT)
        self.decode = nn.Sequential(
            nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS), nn.Sigmoid()
        )

    def forward(self, x):
        hidden = self.encode(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        rebuilt = self.decode(mean)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(dim=-1)
        return F.mse_loss(rebuilt, x) + divergence.mean()


def get_inputs(batch=32):
    return [torch.rand(batch, PIXELS)]


def get_init_inputs():
    return []
