"""Prints and warns at every call, as files under development do."""

import logging
import sys
import warnings

import torch
from torch import nn

MODEL = "pointwise"


class ModelNew(nn.Module):
    def forward(self, x):
        print("forward of", tuple(x.shape))
        print("to stderr", file=sys.stderr)
        warnings.warn("not finished", stacklevel=1)
        logging.getLogger("kernel").warning("shape %s", tuple(x.shape))
        return torch.tanh(x) * x
