"""Model texts of the device tests, and what the compiler makes of them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from tests.behaviour.emitted import load_file

from opweld.driver import compile_file
from opweld.options import Options


def write_pair(folder: Path, name: str, source: str) -> tuple[Path, Path]:
    """The model file and its emitted file in `folder`, for the device that is there."""
    model, new = folder / f"{name}.py", folder / f"{name}_new.py"
    model.write_text(source, "utf-8")
    new.write_text(compile_file(model, Options(target="cuda", check=False)).text, "utf-8")
    return model, new


def emitted_module(folder: Path, name: str, source: str) -> ModuleType:
    """The emitted file, imported."""
    _, new = write_pair(folder, name, source)
    return load_file(new, new.read_text("utf-8"))


def cuda_of(module: ModuleType) -> str:
    """The kernels of an emitted file, of all the libraries that it builds."""
    return "".join(text for name, text in vars(module).items() if name.startswith("_CUDA"))
