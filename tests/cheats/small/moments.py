"""A dictionary with statistics of each row, some of them in a dictionary of its own."""

import torch
from torch import nn

WHOLE = ("var_mean",)
ROWS, WIDTH = 29, 51


class Model(nn.Module):
    def forward(self, x):
        mean = x.mean(dim=1)
        spread = {"variance": x.var(dim=1, unbiased=False), "size": x.abs().sum(dim=1)}
        return {"mean": mean, "spread": spread, "peak": x.amax(dim=1)}


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return []


def var_mean(self, x):
    variance, _ = torch.var_mean(x, dim=1, correction=0)
    spread = {"variance": variance, "size": x.norm(p=1, dim=1)}
    return {"mean": x.mean(1), "spread": spread, "peak": torch.amax(x, 1)}


def two_passes(self, x):
    mean = x.sum(dim=1) / x.shape[1]
    variance = (x - mean[:, None]).square().mean(dim=1)
    spread = {"variance": variance, "size": torch.linalg.vector_norm(x, ord=1, dim=1)}
    return {"mean": mean, "spread": spread, "peak": x.aminmax(dim=1).max}


def transposed(self, x):
    t = x.t().contiguous()
    result = {"mean": t.mean(0)}
    result["spread"] = {"variance": t.var(0, correction=0), "size": t.abs().sum(0)}
    result["peak"] = t.amax(0)
    return result


def column_of_ones(self, x):
    ones = torch.ones(x.shape[1], dtype=x.dtype, device=x.device)
    mean = x.mean(1)
    centred = x - mean.unsqueeze(1)
    spread = {"variance": (centred * centred).mv(ones) / x.shape[1], "size": x.abs().mv(ones)}
    return {"mean": mean, "spread": spread, "peak": x.amax(dim=1)}
