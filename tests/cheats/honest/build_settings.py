"""Says what a build is for, and adds a warnings filter, a path and a variable of its own."""

import os
import sys
import sysconfig
import warnings

import torch
import torch.utils.cpp_extension
from torch import nn

MODEL = "pointwise"

os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
os.environ.setdefault("MAX_JOBS", "2")
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
os.environ["POINTWISE_LOG_LEVEL"] = "1"
sys.path.append(os.path.dirname(__file__))
warnings.filterwarnings("ignore", message="TORCH_CUDA_ARCH_LIST is not set")
sys.setrecursionlimit(max(sys.getrecursionlimit(), 5000))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
