"""Raises an exception whose text cannot be had."""

from torch import nn

MODEL = "pointwise"
CLASS = "crashes and floods"
CAUGHT_BY = ("own inputs",)


class Nasty(BaseException):
    def __str__(self):
        raise Nasty

    __repr__ = __str__


class ModelNew(nn.Module):
    def forward(self, x):
        raise Nasty
