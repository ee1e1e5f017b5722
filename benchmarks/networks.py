"""The models whose text, times and host time are recorded, with what is asked of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmarks import convolutions

from opweld.ir.original import Original
from opweld.model_file import NAMES, load, make_inputs, make_model, read_source

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "benchmarks" / "models"


@dataclass(frozen=True)
class Row:
    """A model file and what is asked of its emitted file.

    `lines` is the most that the text may have, `seconds` the most that making and building it may
    take, None where nothing is asked. `training` is the module's mode. `gpu_batch` is the argument
    of `get_inputs` where speed is measured on a GPU; None keeps the file's own. Where the file has
    several models, `convolution` names one of convolutions.py.
    """

    name: str
    path: Path
    lines: int | None = None
    seconds: float | None = None
    training: bool = False
    gpu_batch: int | None = None
    convolution: str = ""


def model(stem: str) -> Path:
    return MODELS / f"{stem}.py"


ROWS = (
    Row("tanh-GELU", ROOT / "examples" / "gelu.py", 300, 6),
    Row("Linear + tail, float32", ROOT / "examples" / "linear_swish.py", 1800, 13),
    Row("layer norm", model("layer_norm"), 500, 8, gpu_batch=65536),
    Row("softmax", model("softmax"), 500, 8, gpu_batch=65536),
    Row("cross entropy", model("cross_entropy"), 500, 8, gpu_batch=32768),
    Row("batch norm + ReLU, training", model("batch_norm_relu"), 600, 11, True, gpu_batch=256),
    Row("attention with a mask", model("masked_attention"), 1500, 15, gpu_batch=16),
    Row("ResNet-18", model("resnet18"), 5000, 30, gpu_batch=64),
    Row("ResNet-18, training", model("resnet18"), 5000, 30, True, gpu_batch=64),
    Row("MobileNetV2", model("mobilenet_v2"), 8000, 45, gpu_batch=64),
    Row("DenseNet-121", model("densenet121"), 5000, 60, gpu_batch=32),
    Row("ViT-B, 12 blocks", model("vit_b"), 3500, 40, gpu_batch=32),
    Row("GPT, 12 blocks", model("gpt"), 3500, 40, gpu_batch=8),
)
# Small networks, whose time is the host's.
HOST_ROWS = tuple(
    Row(name, MODELS / "host" / f"{stem}.py")
    for name, stem in (
        ("MLP", "mlp"),
        ("encoder layer", "encoder_layer"),
        ("attention block", "attention_block"),
        ("UNet", "unet"),
        ("graph network", "graph_network"),
        ("small conv net", "conv_net"),
        ("GPT block", "gpt_block"),
        ("LSTM cell, 8 steps", "recurrent_cell"),
        ("autoencoder", "autoencoder"),
        ("embedding bag", "embedding_bag"),
    )
)
CONVOLUTION_ROWS = tuple(
    Row(name, Path(convolutions.__file__), training=name.endswith("training"), convolution=name)
    for name in convolutions.MODELS
)
# Networks of convolutions, at several batches in eval mode; in training mode, too, where norms take
# statistics then, without gradients.
BATCHES = (1, 8, 32)
_WITH_NORMS = (
    ("ResNet-18", "resnet18"),
    ("ResNet-50", "resnet50"),
    ("MobileNetV2", "mobilenet_v2"),
    ("UNet of four levels", "unet"),
    ("DCGAN generator", "dcgan"),
    ("video blocks", "video"),
)
_NETWORKS = (*_WITH_NORMS, ("ConvNeXt-T", "convnext_t"), ("WaveNet, 8 blocks", "wavenet"))
NETWORK_ROWS = (
    *(Row(f"{n}, batch {b}", model(stem), gpu_batch=b) for n, stem in _NETWORKS for b in BATCHES),
    *(
        Row(f"{n}, batch {BATCHES[-1]}, training", model(stem), None, None, True, BATCHES[-1])
        for n, stem in _WITH_NORMS
    ),
)
# Forward and backward of the same, with kernels for both.
STEP_ROWS = tuple(
    Row(f"{n}, batch {BATCHES[-1]}, step", model(stem), None, None, True, BATCHES[-1])
    for n, stem in _WITH_NORMS
)
BY_NAME = {
    row.name: row for row in (*ROWS, *HOST_ROWS, *CONVOLUTION_ROWS, *NETWORK_ROWS, *STEP_ROWS)
}


@dataclass(frozen=True)
class Loaded:
    """A row's module, in its mode, and an example of its inputs, on a device."""

    original: Original
    module: torch.nn.Module
    inputs: tuple[Any, ...]


def loaded(row: Row, device: str = "cpu", batch: int | None = None) -> Loaded:
    """The same weights and inputs at each call."""
    torch.manual_seed(0)
    if row.convolution:
        return _convolution(row, device)
    file = load(row.path, f"model_of_{row.path.stem}")
    about = Original(row.path.name, file.__name__, "Model", read_source(row.path), NAMES)
    module = make_model(row.path, file, torch.nn.Module).train(row.training).to(device)
    inputs = make_inputs(row.path, file) if batch is None else tuple(file.get_inputs(batch))
    return Loaded(about, module, tuple(x.to(device) for x in inputs))


def _convolution(row: Row, device: str) -> Loaded:
    kind = convolutions.MODELS[row.convolution]
    about = Original(row.path.name, kind.__module__, kind.__name__, None)
    module = kind().train(row.training).to(device)
    return Loaded(about, module, tuple(x.to(device) for x in kind.inputs()))


def chosen(rows: tuple[Row, ...], only: str) -> list[Row]:
    """Those that have one of the parts in `only`, between bars, in their name."""
    return [row for row in rows if any(part in row.name for part in only.split("|"))]


def synchronised(device: str) -> Callable[[], None]:
    """Waits until the device has nothing left to do."""
    return torch.cuda.synchronize if device == "cuda" else lambda: None
