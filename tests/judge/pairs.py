"""Small pairs of files, and a judge that runs on them in this process."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import torch

from opweld.judge.process.side import Side
from opweld.judge.session import Request, judge
from opweld.judge.values import Check, Event, Judgement, Settings

HEAD = """\
import math
import torch
from torch import nn
from torch.nn import functional as F

"""

# A model with parameters, a product and a pointwise tail: the usual prey.
LINEAR = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 24)

    def forward(self, x):
        y = self.fc(x)
        return torch.tanh(y * torch.sigmoid(y))

def get_inputs():
    return [torch.randn(6, 16)]

def get_init_inputs():
    return [16]
"""

POINTWISE = """
class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x

def get_inputs():
    return [torch.randn(9, 33)]

def get_init_inputs():
    return []
"""

# A candidate that computes what the model does, the model itself.
SAME = "class ModelNew(Base):\n    pass\n"
OWN = "own inputs"  # the first check
EVERYTHING = {"device": "cpu", "measure": False, "stop_at_first": False}


@dataclass
class Notes:
    """A channel that keeps what it is told."""

    phases: list[tuple[str, str]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    partials: list[Judgement] = field(default_factory=list)

    def phase(self, who: str, what: str) -> None:
        self.phases.append((who, what))

    def event(self, event: Event) -> None:
        self.events.append(event)

    def partial(self, judgement: Judgement) -> None:
        self.partials.append(judgement)


def write(path: Path, text: str) -> Path:
    path.write_text(HEAD + textwrap.dedent(text))
    return path


def write_pair(folder: Path, model: str, new: str) -> tuple[Path, Path]:
    """`new` is the text of a subclass: the original, renamed `Base`, stands above it."""
    base = model.replace("class Model(", "class Base(")
    return write(folder / "model.py", model), write(folder / "new.py", base + textwrap.dedent(new))


def judge_here(model: Path, new: Path, seed: int = 7, **settings: object) -> Judgement:
    """The judgement without a child, and without timing where it is not asked for."""
    chosen = Settings(**{**EVERYTHING, **settings})  # type: ignore[arg-type]
    default = torch.get_default_dtype()
    try:
        return judge(Request(str(model), str(new), chosen, seed), Notes(), Side())
    finally:
        torch.set_default_dtype(default)


def judge_pair(folder: Path, model: str, new: str, seed: int = 7, **settings: object) -> Judgement:
    return judge_here(*write_pair(folder, model, new), seed=seed, **settings)


def named(judgement: Judgement, name: str) -> Check:
    """The check of that name."""
    return next(check for check in judgement.verdict.checks if check.name == name)


def failing(judgement: Judgement) -> set[str]:
    return {check.name for check in judgement.verdict.failures}
