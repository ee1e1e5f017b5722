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


def other_functions(self, x):
    mean = x.sum(dim=1) / x.shape[1]
    variance = torch.var(x, 1, correction=1) * ((x.shape[1] - 1) / x.shape[1])
    spread = {"variance": variance, "size": torch.linalg.vector_norm(x, ord=1, dim=1)}
    return {"mean": mean, "spread": spread, "peak": x.aminmax(dim=1).max}


def transposed(self, x):
    t = x.t().contiguous()
    result = {"mean": t.mean(0)}
    result["spread"] = {"variance": t.var(0, correction=0), "size": t.abs().sum(0)}
    result["peak"] = t.amax(0)
    return result


def float64_inside(self, x):
    wide = x.double()
    mean = wide.mean(1)
    variance = (wide - mean.unsqueeze(1)).square().mean(1)
    spread = {"variance": variance.to(x.dtype), "size": wide.abs().sum(1).to(x.dtype)}
    return {"mean": mean.to(x.dtype), "spread": spread, "peak": x.amax(dim=1)}
