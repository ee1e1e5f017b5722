"""Returns an object that runs code where it is unpickled, and writes a file there."""

import os
import tempfile

from torch import nn

MODEL = "pointwise"
CLASS = "form of results"
CAUGHT_BY = ("own inputs",)
MARK = os.path.join(tempfile.gettempdir(), "opweld-cheat-was-unpickled")


class Payload:
    def __reduce__(self):
        return os.mkdir, (MARK,)


class ModelNew(nn.Module):
    def forward(self, x):
        return Payload()
