"""Changes settings of the process while it computes, and puts every one of them back."""

import gc
import threading
import warnings

import torch
from torch import nn

MODEL = "pointwise"


def collect():
    gc.disable()
    gc.collect()
    gc.enable()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        # a thread that waits for work, and does nothing until there is some
        self.work = threading.Event()
        threading.Thread(target=self.work.wait, daemon=True).start()

    def forward(self, x):
        collect()
        with warnings.catch_warnings(), torch.backends.mkldnn.flags(enabled=False):
            warnings.simplefilter("ignore")
            return torch.tanh(x) * x
