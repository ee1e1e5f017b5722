"""Models that read by the numbers of an index, for the device tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TEXT = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {held}

    def forward(self, {names}):
        return {forms},

{below}

def get_inputs():
    n = {example}
    return [{inputs}]

def get_init_inputs():
    return []
"""

BELOW = """
def below(high, *shape, dtype=torch.int64):
    return torch.randint(max(high, 1), shape, dtype=dtype)
"""
EXAMPLE = 37


@dataclass(frozen=True)
class Picks:
    """What the forward gives, in `forms`, of operands that `inputs` makes for a batch of `n`.

    The last operand is an index.
    """

    names: str
    inputs: str
    forms: tuple[str, ...]
    held: str = "pass"

    @property
    def source(self) -> str:
        return TEXT.format(
            names=self.names,
            inputs=self.inputs,
            forms=", ".join(self.forms),
            held=self.held.replace("\n", "\n" + 8 * " "),
            below=BELOW,
            example=EXAMPLE,
        )

    def draw(self, batch: int, device: str = "cuda") -> list[Tensor]:
        """Arguments of the forward for this batch, the same each time."""
        scope: dict[str, Any] = {"torch": torch, "n": batch}
        exec(BELOW, scope)
        torch.manual_seed(batch)
        return [x.to(device) for x in eval(f"[{self.inputs}]", scope)]


TABLE = """self.table = nn.Embedding(50, 256, padding_idx=3)
self.places = nn.Parameter(torch.randn(7, 256))
self.norm = nn.LayerNorm(256)"""
NORMALISED = ("self.norm(self.table(ids) * 4.0 + self.places)", "F.gelu(self.table(ids))")
GATHERS = (
    "x.gather(1, columns).exp()",
    "x.gather(0, rows) * 2 + x",
    "torch.tanh(x * 2).gather(-1, columns)",
    "x.gather(1, columns).sum(-1)",
)
SELECTIONS = (
    "x.index_select(0, rows) * 2",
    "x.index_select(1, columns).tanh()",
    "x[rows] - 1",
    "x[:, columns].exp()",
)


def scores(reduction: str) -> tuple[str, ...]:
    """Scores of classes in each way; the weights of the classes are above zero."""
    last = f"reduction={reduction!r}"
    return (
        f"F.nll_loss(F.log_softmax(x, 1), y, {last})",
        f"F.nll_loss(F.log_softmax(x, 1), y, weight=w, ignore_index=5, {last})",
        f"F.cross_entropy(x, y, {last})",
        f"F.cross_entropy(x, y, weight=w, ignore_index=5, {last})",
        f"F.cross_entropy(x, y, label_smoothing=0.2, ignore_index=5, {last})",
        f"F.cross_entropy(x, y, weight=w, label_smoothing=0.1, {last})",
    )


SCORED = "torch.randn(n, 129), torch.rand(129) + 0.5, below(129, n)"
PLANES = "torch.randn(n, 12, 5, 7), torch.rand(12) + 0.5, below(12, n, 5, 7)"
SPREAD = "torch.randn(n, 60), below(n, n, 60), below(60, n, 33)"
SHORT = "dtype=torch.int32"
MODELS = {
    "embedding": Picks("ids", "below(50, n, 7)", NORMALISED, TABLE),
    "embedding by int32": Picks("ids", f"below(50, n, 7, {SHORT})", NORMALISED, TABLE),
    "gathers": Picks("x, rows, columns", SPREAD, GATHERS),
    "half gathers": Picks(
        "x, rows, columns", SPREAD.replace("60),", "60).bfloat16(),", 1), GATHERS
    ),
    "selections": Picks(
        "x, rows, columns", "torch.randn(n, 60), below(n, n), below(60, 33)", SELECTIONS
    ),
    "selections by int32": Picks(
        "x, rows, columns",
        f"torch.randn(n, 60), below(n, n, {SHORT}), below(60, 33, {SHORT})",
        SELECTIONS,
    ),
    "from either end": Picks(
        "x, columns", "torch.randn(n, 60), below(120, 33) - 60", ("x[:, columns].sin() * 2",)
    ),
    "along": Picks(
        "x, columns",
        "torch.randn(n, 60), below(60, n, 33)",
        ("torch.take_along_dim(x, columns, 1).sin()", "torch.take_along_dim(x * 2, columns, -1)"),
    ),
    "classes": Picks(
        "y", "below(12, n, 5)", ("F.one_hot(y, 12)", "F.one_hot(y, 12).float() * 0.5")
    ),
    "scores": Picks("x, w, y", SCORED, scores("none")),
    "mean scores": Picks("x, w, y", SCORED, scores("mean")),
    "summed scores": Picks("x, w, y", SCORED, scores("sum")),
    "scores of planes": Picks("x, w, y", PLANES, scores("none")[:4] + scores("mean")[2:]),
}
