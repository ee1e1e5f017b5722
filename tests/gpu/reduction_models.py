"""Models of reductions for the device tests: each has several forms, sizes or axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

# Around the edges of packets, warps, blocks and registers, and of what is cut in pieces.
LENGTHS = (1, 7, 8, 31, 32, 33, 127, 128, 129, 1000, 1023, 1024, 1025, 4096)
LENGTHS += (32767, 32768, 32769, 100003)
# Beside those, the most that each number of threads keeps in registers, that one multiprocessor
# keeps, and that two and eight keep, and the next packet.
EDGES = (*LENGTHS, 256, 260, 512, 516, 2048, 2052, 8192, 8196, 16384, 16388, 32772, 1000000)
EDGES += (45056, 45060, 86016, 90112, 90116, 131072, 360448, 360452, 393216, 688128, 688132)
SOME_LENGTHS = (7, 8, 33, 128, 1000, 1025, 4096, 32769)
ROWS = (1, 2, 131, 132, 264, 1000)

TEXT = """
import torch
from torch import nn
from torch.nn import functional as F

def forms({operands}):
    return {{
        {forms}
    }}

class Model(nn.Module):
    def forward(self, {names}):
        return [{calls}]

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

Forms = Mapping[str, str]
FOLDS = {
    "sum": "x.sum(-1)",
    "mean": "x.mean(-1)",
    "amax": "x.amax(-1)",
    "amin": "x.amin(-1)",
    "argmax": "x.argmax(-1)",
    "argmin": "x.argmin(-1)",
    "any": "(x > 2).any(-1)",
    "all": "(x > -2).all(-1)",
}
SOFTMAX = {"softmax": "x.softmax(-1)"}
LOGARITHMS = {"log_softmax": "F.log_softmax(x, -1)", "logsumexp": "x.logsumexp(-1)"}
LAYER_NORM = {"layer_norm": "F.layer_norm(x, x.shape[-1:])"}
RMS_NORM = {"rms_norm": "F.rms_norm(x, x.shape[-1:], eps=1e-5)"}
SPREAD = {"var": "x.var(-1)", "std": "x.std(-1, correction=0)"}
SEVERAL = {**FOLDS, **SOFTMAX, **LAYER_NORM}
INTEGERS = {name: FOLDS[name] for name in ("sum", "amax", "amin", "argmax", "argmin", "any")}
BOOLEANS = {"sum": "x.sum(-1)", "any": "x.any(-1)", "all": "x.all(-1)", "amax": "x.amax(-1)"}
# Of tensors whose first axis may have any length: every number of threads a row, in one file.
FLAT = {
    "sum": "x.sum()",
    "mean": "x.mean()",
    "max": "x.max()",
    "argmin": "x.argmin()",
    "norm": "x.norm()",
}
WHOLE = {"softmax": "x.softmax(0)", "var": "x.var()"}
COLUMNS = {
    "sum": "x.sum(0)",
    "amax": "x.amax(0)",
    "argmax": "x.argmax(0)",
    "softmax": "x.softmax(0)",
    "var": "x.var(0)",
}
AXES = {
    str(axes): f"x.sum({axes}), x.amax({axes})"
    for axes in (0, 1, 2, 3, (0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 1, 3), (0, 1, 2, 3))
}
NORMS = {
    "group_norm": "F.group_norm(x, 4)",
    "instance_norm": "F.instance_norm(x)",
    "rms_norm of channels": "x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5)",
    "layer_norm of all": "F.layer_norm(x, x.shape[1:])",
    "standardised channels": "(x - x.mean((0, 2, 3), True)) / x.std((0, 2, 3), keepdim=True)",
}
LOSSES = {
    "mse": "F.mse_loss(x, y)",
    "l1": "F.l1_loss(x, y)",
    "huber": "F.huber_loss(x, y)",
    "smooth_l1": "F.smooth_l1_loss(x, y, beta=0.5)",
    "kl_div": "F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction='batchmean')",
    "hinge": "torch.clamp(1 - x * y.sign(), min=0).mean()",
    "logits": "F.binary_cross_entropy_with_logits(x, y.sigmoid())",
    "cross_entropy of classes": "F.cross_entropy(x, y.argmax(-1), ignore_index=1)",
    "nll_loss": "F.nll_loss(x, y.argmax(-1), reduction='none')",
    "cosine": "F.cosine_similarity(x, y, dim=-1)",
    "distance": "F.pairwise_distance(x, y)",
    "triplet": "F.triplet_margin_loss(x, y, -y)",
    "norms": "torch.linalg.vector_norm(x - y, 3, -1), x.norm(1), x.norm(torch.inf)",
}

# Of which torch 2.11 exports one number of rows.
SOFT_LABELS = {"cross_entropy": "F.cross_entropy(x, F.softmax(y, -1))"}

LINES = {
    "max_pool 2": "F.max_pool1d(x, 2)",
    "max_pool 3 dilated": "F.max_pool1d(x, 3, 2, 1, 2, return_indices=True)",
    "avg_pool 5": "F.avg_pool1d(x, 5, 3, 2, True, False)",
    "windows": "x.unfold(-1, 4, 3).sum(-1)",
}
PLANES = {
    "max_pool 2": "F.max_pool2d(x, 2, return_indices=True)",
    "max_pool 3 2": "F.max_pool2d(F.relu(x + 0.5), 3, 2, 1) * 2",
    "max_pool 3 1": "F.max_pool2d(F.gelu(x), 3, 1, 1)",
    "max_pool 4 dilated": "F.max_pool2d(x, 4, 2, 2, 2)",
    "max_pool 8": "F.max_pool2d(x, 8, ceil_mode=True)",
    "max_pool dilated": "F.max_pool2d(x, (3, 2), 2, 1, (2, 3), return_indices=True)",
    "avg_pool 3 2": "F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)",
    "avg_pool 2": "F.avg_pool2d(x, 2, ceil_mode=True)",
    "lp_pool": "F.lp_pool2d(x.abs(), 2, 3)",
}
CUBES = {
    "max_pool 2": "F.max_pool3d(x, 2, return_indices=True)",
    "max_pool 3 2": "F.max_pool3d(x, 3, 2, 1)",
    "max_pool 4 dilated": "F.max_pool3d(x, 4, 2, 2, 2)",
    "max_pool 8": "F.max_pool3d(x, 8, 4)",
    "avg_pool 3 1": "F.avg_pool3d(x, 3, 1, 1)",
    "adaptive": "F.adaptive_max_pool3d(x, (4, 2, 8)), F.adaptive_avg_pool3d(x, (2, 4, 1))",
}


@dataclass(frozen=True)
class Model:
    """Forms of x, or of x and y, for several shapes of them; axis 0 has any size in a call, or
    always that of `rows`.
    """

    forms: Forms
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    operands: str = "x"
    example: int = 24
    rows: int | None = None

    @property
    def source(self) -> str:
        names = [[f"{operand}{i}" for operand in self._operands] for i in range(len(self.shapes))]
        made = "torch.ones({}, *{}, dtype=torch.{})"
        inputs = [made.format(self.example, shape, self.dtype) for shape in self._all_shapes]
        return TEXT.format(
            operands=self.operands,
            forms="\n        ".join(f'"{name}": ({text}),' for name, text in self.forms.items()),
            names=", ".join(name for group in names for name in group),
            calls=", ".join(f"forms({', '.join(group)})" for group in names),
            inputs=", ".join(inputs),
        )

    @property
    def _operands(self) -> list[str]:
        return self.operands.split(", ")

    @property
    def _all_shapes(self) -> list[tuple[int, ...]]:
        return [shape for shape in self.shapes for _ in self._operands]

    def draw(self, rows: int, seed: int = 0, device: str = "cuda") -> list[Tensor]:
        """Arguments of the forward whose axis 0 has this size."""
        generator = torch.Generator(device).manual_seed(1000 * rows + seed)
        sizes = [(self.rows or rows, *shape) for shape in self._all_shapes]
        return [drawn(size, getattr(torch, self.dtype), generator) for size in sizes]


def drawn(size: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Normal numbers; integers up to 2^40, whose sums wrap nowhere; mostly False."""
    device = generator.device
    if dtype is torch.bool:
        share = 1 / math.prod(size[1:])
        return torch.rand(size, generator=generator, device=device) < share
    if not dtype.is_floating_point:
        return torch.randint(-(2**40), 2**40, size, generator=generator, device=device)
    return torch.randn(size, generator=generator, device=device).to(dtype)


def rows_of(forms: Forms, lengths: tuple[int, ...] = LENGTHS, dtype: str = "float32") -> Model:
    return Model(forms, tuple((length,) for length in lengths), dtype)


MODELS = {
    "folds": rows_of(FOLDS, LENGTHS[1:]),
    "softmax": rows_of(SOFTMAX),
    "logarithms": rows_of(LOGARITHMS),
    "layer norm": rows_of(LAYER_NORM),
    "rms norm": rows_of(RMS_NORM),
    "spread": rows_of(SPREAD, LENGTHS[1:]),
    "bfloat16": rows_of(SEVERAL, SOME_LENGTHS, "bfloat16"),
    "float16": rows_of(SEVERAL, SOME_LENGTHS, "float16"),
    "float64": rows_of(SEVERAL, SOME_LENGTHS, "float64"),
    "int64": rows_of(INTEGERS, SOME_LENGTHS, "int64"),
    "bool": rows_of(BOOLEANS, SOME_LENGTHS, "bool"),
    "flat": Model(FLAT, ((),), example=2**20),
    "whole": Model(WHOLE, ((),), example=4096),
    "columns": Model(COLUMNS, ((1,), (3,), (64,), (301,)), example=4096),
    "many columns": Model(COLUMNS, ((16384,), (16387,)), example=256),
    "half columns": Model(COLUMNS, ((8,), (129,), (16384,)), "bfloat16", example=256),
    "axes": Model(AXES, ((5, 33, 8), (16, 7, 7))),
    "norms": Model(NORMS, ((16, 9, 9), (8, 64, 64), (64, 16, 16))),
    "lines": Model(LINES, ((3, 64), (16, 1001))),
    "planes": Model(PLANES, ((3, 33, 30), (16, 56, 64))),
    "half planes": Model(PLANES, ((3, 33, 30), (16, 56, 64)), "bfloat16"),
    "cubes": Model(CUBES, ((2, 8, 12, 16), (4, 16, 16, 32))),
    "int64 planes": Model({"max_pool": PLANES["max_pool 2"]}, ((3, 9, 11),), "int64"),
    "losses": Model(LOSSES, ((33,), (1000,), (4096,)), operands="x, y"),
    "soft labels": Model(SOFT_LABELS, ((33,), (1000,)), operands="x, y", rows=24),
}
