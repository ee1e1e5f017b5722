"""Model texts of the device tests, and what the compiler makes of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from tests.behaviour.emitted import load_file

from opweld.driver import compile_file
from opweld.options import Options
from opweld.plan.cost import ProductTimes
from opweld.plan.products.one_tap_and_halos import by_halos
from opweld.plan.products.windows import ConvolutionTimes

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {held}

    def forward(self, x):
        return {result}

def get_inputs():
    return [{example}]

def get_init_inputs():
    return []
"""


def model_text(held: str, result: str, example: str) -> str:
    """The text of a model of one expression of `x`, whose submodules one line makes."""
    return MODEL.format(held=held, result=result, example=example)


def write_pair(folder: Path, name: str, source: str, **asked: Any) -> tuple[Path, Path]:
    """The model file and its emitted file in `folder`, for the device that is there; `asked` are
    options.
    """
    model, new = folder / f"{name}.py", folder / f"{name}_new.py"
    model.write_text(source, "utf-8")
    options = Options(target="cuda", check=False, **asked)
    new.write_text(compile_file(model, options).text, "utf-8")
    return model, new


def emitted_module(folder: Path, name: str, source: str, **asked: Any) -> ModuleType:
    """The emitted file, imported."""
    _, new = write_pair(folder, name, source, **asked)
    return load_file(new, new.read_text("utf-8"))


def cuda_of(module: ModuleType) -> str:
    """The kernels of an emitted file, of all the libraries that it builds."""
    return "".join(text for name, text in vars(module).items() if name.startswith("_CUDA"))


@contextmanager
def all_products_ours() -> Iterator[None]:
    """While a plan's products, and what follows them, are each one kernel of ours, whatever is
    expected of them, and small ones are made as large ones are.
    """
    times = ProductTimes(fused=1.0, apart=20.0, library=20.0)
    with (
        mock.patch("opweld.plan.products.choice.estimate_product", return_value=times),
        mock.patch("opweld.plan.products.choice.square_side", return_value=0),
        mock.patch("opweld.plan.schedule.square_side", return_value=0),
    ):
        yield


@contextmanager
def all_convolutions_ours() -> Iterator[None]:
    """While each convolution that a kernel of ours can make is one, in TF32 where torch's flags
    allow it, whatever is expected of it.
    """
    times = ConvolutionTimes(ours=1.0, library=20.0)
    with (
        mock.patch("opweld.plan.products.choice.estimate_convolution", return_value=times),
        mock.patch("opweld.plan.products.windows.estimate_convolution", return_value=times),
        mock.patch("opweld.plan.convolves_in_tf32", lambda _, __, asked: asked.tf32_convolutions),
    ):
        yield


@contextmanager
def all_halos_ours() -> Iterator[None]:
    """While each convolution that halos can make, few tiles or many, is made by them."""
    choosing = functools.partial(by_halos, tile_us=math.inf)
    with (
        all_convolutions_ours(),
        mock.patch(
            "opweld.plan.products.windows.by_halos", lambda made, mode, *_: choosing(made, mode)
        ),
    ):
        yield
