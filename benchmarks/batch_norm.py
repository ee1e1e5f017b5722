"""Times a batch norm with ReLU in training beside variants of its kernels, and emitted files given.

    python benchmarks/batch_norm.py                        64 images of 64 channels, 112 by 112
    python benchmarks/batch_norm.py --shape 16,64,56,56 OTHER_new.py

A variant is the emitted file with some words changed, so that what each does can be told. Files
that are given must be of the same model, as those of another version of the compiler are. The ways
run interleaved behind a flush of the L2 cache; of each the statistics are timed alone, too, the
rest being the map. Milliseconds: the median.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from opweld.driver import compile_file  # noqa: E402
from opweld.judge.measure.clock import time_interleaved  # noqa: E402
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402

MODEL = """import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d({channels})

    def forward(self, x):
        return torch.relu(self.norm(x))

def get_inputs():
    return [torch.randn({shape})]

def get_init_inputs():
    return []
"""
# What is replaced, and by what. Nothing of it changes a result by more than the order of its sums.
_DIVIDES = "return __umulhi(2 * at, factor) >> shift;"
_ONCE = "if (n > 1 && x.step == 0) {"
_RESIDENT = "static constexpr int kResident = 1280;"
_EACH = "kLeastEach = 8,"
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "as emitted": {},
    "64 registers a thread": {_RESIDENT: _RESIDENT.replace("1280", "1024")},
    "small positions are told apart": {
        _DIVIDES: _DIVIDES.replace("return ", "return at < Index(by) ? 0 : ")
    },
    "sizes are divided by": {_DIVIDES: "return at / Index(by);"},
    "four reads of one value": {_ONCE: "if (false) {"},
    "4 blocks a multiprocessor": {_EACH: _EACH.replace("8", "4")},
    "5 blocks a multiprocessor": {_EACH: _EACH.replace("8", "5")},
    "16 blocks a multiprocessor": {_EACH: _EACH.replace("8", "16")},
    "24 blocks a multiprocessor": {_EACH: _EACH.replace("8", "24")},
}


def varied(text: str, words: Mapping[str, str]) -> str:
    """The emitted file with other words; each must be there."""
    for before, after in words.items():
        if before not in text:
            raise ValueError(f"the emitted file has no {before!r}")
        text = text.replace(before, after)
    return text


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Other emitted files.")] = None,
    shape: Annotated[str, typer.Option(help="Images, channels, height, width.")] = "64,64,112,112",
    budget_s: Annotated[float, typer.Option(help="Seconds for each way.")] = 1.0,
) -> None:
    """Prints a line for each way."""
    sizes = [int(size) for size in shape.split(",")]
    x = torch.randn(sizes, device="cuda")
    with tempfile.TemporaryDirectory() as name:
        built = {file.stem: _model(file) for file in emitted(sizes, Path(name), "cuda")}
        built |= {file.stem: _model(file) for file in files or []}
    actions = _actions(built, x)
    actions["eager"] = partial(_eager(sizes[1]), x)
    timed = time_interleaved(actions, x.device, budget_s)
    print(f"{torch.cuda.get_device_name()}, {shape}")
    for way, samples in timed.items():
        print(f"{samples.median:9.4f}  {way}")


def emitted(sizes: list[int], folder: Path, target: str) -> list[Path]:
    """The emitted file of each variant."""
    model = folder / "model.py"
    model.write_text(MODEL.format(channels=sizes[1], shape=", ".join(map(str, sizes))))
    text = compile_file(model, Options(target=target)).text
    files = [folder / f"{name}.py" for name in VARIANTS]
    for file, words in zip(files, VARIANTS.values(), strict=True):
        file.write_text(varied(text, words))
    return files


def _model(file: Path) -> torch.nn.Module:
    module = import_file(file, f"batch_norm_{abs(hash(file.stem))}")
    model: torch.nn.Module = module.ModelNew(*module.get_init_inputs())
    return model.cuda().train()


def _eager(channels: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.BatchNorm2d(channels), torch.nn.ReLU()).cuda().train()


def _actions(built: Mapping[str, Any], x: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Each model's call, and each of its kernels' alone."""
    found: dict[str, Callable[[], Any]] = {}
    for name, model in built.items():
        found[name] = partial(_without_gradients, model, x)
        keys = [key for key in dir(model._opweld) if key.startswith("k1_div_add_rsqrt")]
        if not keys:
            raise SystemExit(f"{name}: its kernels were not built")
        statistics = getattr(model._opweld, keys[0])
        found[f"{name}: statistics"] = partial(_without_gradients, statistics, x)
    return found


@torch.no_grad()
def _without_gradients(run: Callable[..., Any], *args: Any) -> Any:
    return run(*args)


if __name__ == "__main__":
    typer.run(main)
