"""Right, and starts a process in a session and with an environment of its own."""

import subprocess

import torch
from torch import nn

MODEL = "pointwise"
CLASS = "process state"
CAUGHT_BY = ("processes left behind",)

subprocess.Popen(["/bin/sleep", "60"], env={}, start_new_session=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
