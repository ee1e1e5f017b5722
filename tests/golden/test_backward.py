"""Gradients of examples by kernels, as they are planned and emitted; `make golden` rewrites them."""

from __future__ import annotations

import difflib
import os
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from opweld.driver import compile_file
from opweld.options import Options

HERE = Path(__file__).parent / "backward"
EXAMPLES = Path(__file__).parents[2] / "examples"
WRITE = os.environ.get("OPWELD_WRITE_GOLDEN") == "1"
NAMES = ("attention_weights", "gelu", "linear_relu", "linear_swish", "rms_norm")


@cache
def text_of(name: str) -> str:
    """What is kept, the plan of each gradient, and the functions that run it."""
    torch.manual_seed(0)
    options = Options(target="sm_90a", check=False, training=True)
    stages = compile_file(EXAMPLES / f"{name}.py", options).stages
    plan = stages["plan"].partition("backward of")
    functions = re.findall(r"^def _\w+_backward\(.*?\n\n", stages["emit"], re.M | re.S)
    return "\n".join(["".join(plan[1:]), *functions])


@pytest.mark.parametrize("name", NAMES)
def test_text(name: str) -> None:
    path, text = HERE / f"{name}.txt", text_of(name)
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != kept:
        lines = difflib.unified_diff(kept.split("\n"), text.split("\n"), "kept", "now", lineterm="")
        pytest.fail("\n".join(["make golden rewrites the file:", *lines]), pytrace=False)


def test_without_the_option_there_is_none() -> None:
    stages = compile_file(EXAMPLES / "gelu.py", Options(target="sm_90a", check=False)).stages
    assert "backward of" not in stages["plan"] and "_by_kernels" not in stages["emit"]
