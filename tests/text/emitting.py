"""Small model files down the compiler, for counting what it writes."""

from __future__ import annotations

from pathlib import Path

import torch
from benchmarks.emitted_lines import parts_of

from opweld.compiled import Compiled
from opweld.driver import compile_file, compile_module
from opweld.ir.original import Original
from opweld.model_file import NAMES, load, make_inputs, make_model
from opweld.options import Options


def compiled(folder: Path, source: str, target: str = "sm_90a") -> Compiled:
    path = folder / "model.py"
    path.write_text(source, "utf-8")
    torch.manual_seed(0)
    return compile_file(path, Options(target=target, check=False))


def compiled_in_mode(folder: Path, source: str, training: bool) -> Compiled:
    """The module in eval or in training, as an engineer would hand it over."""
    path = folder / "model.py"
    path.write_text(source, "utf-8")
    file = load(path, "model_in_mode")
    model, inputs = make_model(path, file, torch.nn.Module).train(training), make_inputs(path, file)
    original = Original(path.name, file.__name__, "Model", source, NAMES)
    return compile_module(model, inputs, {}, original, Options(target="sm_90a", check=False))


def cpp_lines(text: str) -> int:
    """Lines of kernels and of headers; those of the host code are not among them."""
    parts = parts_of(text)
    return parts["kernels"] + parts["support_cpp"]
