"""Sets a part of the L2 cache apart for its weights, which a flush does not reach."""

import ctypes

import torch
from torch import nn

MODEL = "linear"
CLASS = "GPU and streams"
CAUGHT_BY = ("global settings of torch",)
DEVICE = "cuda"
LIMIT_PERSISTING_L2 = 6  # cudaLimitPersistingL2CacheSize


class ModelNew(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.fc = nn.Linear(width, num_out)
        self.scale = nn.Parameter(torch.ones(num_out))
        self.is_set = False

    def forward(self, x):
        if not self.is_set:
            maps = open("/proc/self/maps", encoding="ascii").read().split()
            path = next(word for word in maps if "libcudart" in word)
            runtime, size = ctypes.CDLL(path), ctypes.c_size_t(2**24)
            if status := runtime.cudaDeviceSetLimit(LIMIT_PERSISTING_L2, size):
                raise RuntimeError(f"cudaDeviceSetLimit: error {status}")
            self.is_set = True
        y = self.fc(x)
        return torch.tanh(y * torch.sigmoid(y)) * self.scale
