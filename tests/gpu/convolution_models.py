"""Model texts of the convolutions that run on a device, by their names."""

from __future__ import annotations

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {parameters}

    def forward(self, x):
        {lines}
        return y.sum(1), y.amax(1), y.mean({space})

def get_inputs():
    return [torch.randn({example})]

def get_init_inputs():
    return []
"""


def model(parameters: str, lines: str, example: str) -> str:
    space = tuple(range(2, example.count(",") + 1))
    return MODEL.format(parameters=parameters, lines=lines, example=example, space=space)


def one(arguments: str, example: str) -> str:
    layer = f"nn.Conv{example.count(',') - 1}d({arguments})"
    return model(f"self.a = {layer}", "y = torch.relu(self.a(x))", example)


def transposed(arguments: str, example: str) -> str:
    return one(arguments, example).replace("nn.Conv", "nn.ConvTranspose")


MODELS = {
    "3 by 3": one("64, 96, 3, padding=1", "4, 64, 33, 29"),
    "pointwise": one("64, 256, 1", "4, 64, 28, 28"),
    "long pointwise": one("512, 128, 1", "4, 512, 14, 14"),
    "bottleneck": model(
        "self.a, self.b = nn.Conv2d(256, 64, 1), nn.Conv2d(64, 64, 3, padding=1)\n"
        "        self.c = nn.Conv2d(64, 256, 1, bias=False)",
        "y = torch.relu(self.a(x))\n"
        "        y = torch.relu(self.b(y))\n"
        "        y = torch.relu(self.c(y) + x)",
        "3, 256, 14, 14",
    ),
    "strided": one("96, 64, 3, stride=2, padding=1", "3, 96, 35, 31"),
    "dilated": one("64, 64, 3, dilation=2, padding='same'", "2, 64, 24, 40"),
    "odd": one("37, 53, (3, 5), padding=(2, 0), stride=(1, 2)", "5, 37, 19, 27"),
    "patches": one("32, 200, 8, stride=8", "8, 32, 64, 64"),
    "many channels": one("512, 130, 3, padding=1", "2, 512, 14, 14"),
    "layers": model(
        "self.a, self.b = nn.Conv2d(64, 96, 3, padding=1), nn.Conv2d(96, 96, 3, padding=1)\n"
        "        self.c = nn.Conv2d(96, 48, 1, stride=2, bias=False)",
        "y = torch.relu(self.a(x))\n"
        "        y = F.silu(self.b(y) + y)\n"
        "        y = torch.tanh(self.c(y))",
        "4, 64, 30, 26",
    ),
    "line": one("64, 96, 5, padding=4, dilation=2", "4, 64, 1000"),
    "strided line": one("37, 130, 8, stride=3, padding=5", "5, 37, 701"),
    "gated line": model(
        "self.a, self.b = nn.Conv1d(64, 192, 1), nn.Conv1d(96, 96, 31, padding=15, groups=96)\n"
        "        self.c = nn.Conv1d(96, 64, 1)",
        "y = F.silu(self.b(F.glu(self.a(x), 1)))\n        y = self.c(y) + x",
        "3, 64, 500",
    ),
    "volume": one("64, 96, 3, padding=1", "2, 64, 7, 14, 13"),
    "strided volume": one("35, 64, (2, 3, 4), stride=2, dilation=(1, 2, 1)", "3, 35, 9, 17, 16"),
    "layers of a volume": model(
        "self.a, self.b = nn.Conv3d(32, 48, 3, padding=1), nn.Conv3d(48, 48, 3, padding='same')\n"
        "        self.c = nn.Conv3d(48, 130, 1, stride=(1, 2, 2))",
        "y = torch.relu(self.a(x))\n"
        "        y = F.max_pool3d(F.silu(self.b(y) + y), 2)\n"
        "        y = torch.tanh(self.c(y))",
        "2, 32, 8, 18, 14",
    ),
    "groups of eight": one("256, 256, 3, padding=1, groups=32", "4, 256, 14, 14"),
    "strided groups": one("128, 256, 3, stride=2, groups=32", "3, 128, 29, 31"),
    "groups of one tap": one("240, 240, 1, groups=3", "4, 240, 14, 15"),
    "wide groups": one("96, 256, 5, padding=2, groups=2", "3, 96, 27, 27"),
    "groups of a volume": one("64, 64, 3, padding=1, groups=8", "2, 64, 5, 9, 11"),
    "transposed": transposed("64, 96, 4, stride=2, padding=1", "4, 64, 17, 15"),
    "odd transposed": transposed("37, 53, (3, 5), (2, 3), (1, 0), (1, 2)", "5, 37, 19, 13"),
    "phases without taps": transposed("64, 64, 2, stride=3, output_padding=2", "3, 64, 12, 14"),
    "transposed line": transposed("64, 130, 16, stride=8, padding=4", "4, 64, 125"),
    "transposed volume": transposed("64, 48, 3, stride=2, padding=1", "2, 64, 5, 8, 7"),
    "decoder": model(
        "self.a = nn.ConvTranspose2d(96, 64, 2, stride=2)\n"
        "        self.b = nn.ConvTranspose2d(64, 64, 3, padding=1, bias=False)\n"
        "        self.c = nn.ConvTranspose2d(64, 33, 5, 3, 1, dilation=2)",
        "y = torch.relu(self.a(x))\n"
        "        y = F.silu(self.b(y) + y)\n"
        "        y = torch.tanh(self.c(y))",
        "4, 96, 12, 10",
    ),
    "stem": one("3, 64, 7, stride=2, padding=3", "4, 3, 61, 67"),
    "few channels": one("16, 96, 3, padding=1", "4, 16, 33, 29"),
    "large patches": one("3, 200, 16, stride=16", "8, 3, 64, 80"),
    "line of one channel": one("1, 64, 400, stride=160", "4, 1, 16000"),
    "stem of a volume": one(
        "3, 32, (3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3)", "2, 3, 5, 31, 33"
    ),
}
