"""The text of a model file whose forward is one expression of x, y, z and w."""

from __future__ import annotations

from collections.abc import Sequence

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def model_text(result: str, inputs: Sequence[str], init: str = "pass") -> str:
    """`inputs` are the expressions that make x, y, z and w, as many as there are."""
    return MODEL.format(
        init=init, names=", ".join("xyzw"[: len(inputs)]), result=result, inputs=", ".join(inputs)
    )
