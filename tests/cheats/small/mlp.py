"""Two linear layers with a ReLU between them, in a Sequential."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("functional", "RebuiltByNames")
ROWS, WIDTH = 17, 48


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 9))

    def forward(self, x):
        return self.net(x)


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, 72]


def functional(self, x):
    first, _, second = self.net
    hidden = F.relu(F.linear(x, first.weight, first.bias))
    return F.linear(hidden, second.weight, second.bias)


def layer_by_layer(self, x):
    for layer in self.net:
        x = layer(x)
    return x


def in_place_relu(self, x):
    hidden = torch.addmm(self.net[0].bias, x, self.net[0].weight.t()).relu_()
    return torch.addmm(self.net[2].bias, hidden, self.net[2].weight.t())


def threshold(self, x):
    return self.net[2](F.threshold(self.net[0](x), 0.0, 0.0))


def columns_of_the_hidden_layer(self, x):
    first, second = self.net[0], self.net[2]
    y = second.bias.expand(x.shape[0], -1)
    rows = zip(
        first.weight.split(16), first.bias.split(16), second.weight.split(16, 1), strict=True
    )
    for weight, bias, out in rows:
        y = y + torch.relu(x @ weight.t() + bias) @ out.t()
    return y


def from_a_dictionary(self, x):
    p = dict(self.named_parameters())
    hidden = torch.relu(x @ p["net.0.weight"].T + p["net.0.bias"])
    return hidden @ p["net.2.weight"].T + p["net.2.bias"]


class RebuiltByNames(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        layers = OrderedDict()
        layers["0"] = nn.Linear(width, hidden)
        layers["2"] = nn.Linear(hidden, 9)
        self.net = nn.ModuleDict(layers)

    def forward(self, x):
        return self.net["2"](torch.relu(self.net["0"](x)))


class LayersInList(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.net = nn.ModuleList([nn.Linear(width, hidden), nn.Identity(), nn.Linear(hidden, 9)])
        self.activation = nn.ReLU()

    def forward(self, x):
        return self.net[2](self.activation(self.net[0](x)))
