"""Right, and leaves a process whose parent has ended, in a session of its own, unmarked."""

import subprocess

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("processes left behind",)

subprocess.run(["/bin/sh", "-c", "/usr/bin/setsid /bin/sleep 60 >/dev/null 2>&1 &"], env={})


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
