"""A linear layer, GELU, and a scale for each of its outputs."""

import torch
from torch import nn
from torch.nn import functional as F

FOR_INFERENCE = ("kept_buffers_inside",)
WHOLE = ("functional", "addmm", "written_out", "parts_of_the_sum")
ROWS, WIDTH = 24, 80


class Model(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.rand(num_out) + 0.5)

    def forward(self, x):
        return F.gelu(self.fc(x)) * self.scale


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, 56]


def functional(self, x):
    return torch.mul(F.gelu(F.linear(x, self.fc.weight, self.fc.bias)), self.scale)


def matmul(self, x):
    y = torch.matmul(x, self.fc.weight.t()) + self.fc.bias
    return F.gelu(y) * self.scale


def addmm(self, x):
    return F.gelu(torch.addmm(self.fc.bias, x, self.fc.weight.T)).mul(self.scale)


def einsum(self, x):
    y = torch.einsum("ni,oi->no", x, self.fc.weight) + self.fc.bias
    return F.gelu(y) * self.scale


def written_out(self, x):
    y = self.fc(x)
    return 0.5 * y * torch.erfc(-y * 0.5**0.5) * self.scale


def parts_of_the_sum(self, x):
    half = x.shape[1] // 2
    left, right = self.fc.weight.split([half, x.shape[1] - half], dim=1)
    y = x[:, :half] @ left.t() + (x[:, half:] @ right.t() + self.fc.bias)
    return F.gelu(y) * self.scale


def other_order_of_sums(self, x):
    y = F.linear(x.flip(1), self.fc.weight.flip(1), self.fc.bias)
    return F.gelu(y) * self.scale


def float64_inside(self, x):
    y = F.linear(x.double(), self.fc.weight.double(), self.fc.bias.double())
    return (F.gelu(y) * self.scale).to(x.dtype)


def weights_packed(self, x):
    packed = torch.cat([self.fc.weight, self.fc.bias[:, None]], dim=1)
    ones = torch.ones(x.shape[0], 1, dtype=x.dtype, device=x.device)
    return F.gelu(torch.cat([x, ones], dim=1) @ packed.t()) * self.scale


def kept_buffers_inside(self, x):
    if not hasattr(self, "room") or self.room.shape[0] < x.shape[0]:
        self.room = torch.empty(x.shape[0], self.fc.out_features, dtype=x.dtype, device=x.device)
    with torch.no_grad():
        room = self.room[: x.shape[0]].to(x.dtype)
        torch.addmm(self.fc.bias, x, self.fc.weight.t(), out=room)
        return F.gelu(room).mul_(self.scale)


class LinearGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        y = torch.addmm(bias, x, weight.t())
        ctx.save_for_backward(x, weight, y)
        return F.gelu(y)

    @staticmethod
    def backward(ctx, gradient):
        x, weight, y = ctx.saved_tensors
        density = torch.exp(-0.5 * y * y) * 0.3989422804014327
        inner = gradient * (0.5 * torch.erfc(-y * 0.5**0.5) + y * density)
        return inner @ weight, inner.t() @ x, inner.sum(dim=0)


def own_backward(self, x):
    return LinearGelu.apply(x, self.fc.weight, self.fc.bias) * self.scale


class ParametersOfItsOwn(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        layer = nn.Linear(width, num_out)
        self.fc = nn.Module()
        self.fc.register_parameter("weight", layer.weight)
        self.fc.register_parameter("bias", layer.bias)
        self.scale = nn.Parameter(torch.rand(num_out).add_(0.5))

    def forward(self, x):
        return F.gelu(F.linear(x, self.fc.weight, self.fc.bias)) * self.scale
