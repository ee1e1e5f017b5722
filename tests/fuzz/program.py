"""A small PyTorch program as data: what a model file says, in parts that can be left out.

`Program.source()` is the model file. A program is valid when `run_eagerly` does not raise: torch
itself decides what fits together.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_ATTRIBUTE = re.compile(r"self\.([a-z_0-9]+)")
_SEED = 5


@dataclass(frozen=True, slots=True)
class Input:
    """A parameter of the forward and the expression in get_inputs that makes it."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Holding:
    """An attribute of the model: a parameter, a buffer or a submodule, by the line that sets it."""

    name: str
    line: str


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the forward; `{0}` and so on in `text` stand for the operands.

    `op` is its name in the account. A step without targets writes to its first operand.
    """

    targets: tuple[str, ...]
    text: str
    operands: tuple[str, ...]
    op: str

    def line(self) -> str:
        made = self.text.format(*self.operands)
        return f"{', '.join(self.targets)} = {made}" if self.targets else made


@dataclass(frozen=True, slots=True)
class Program:
    """Inputs, attributes, lines, and what is returned: `{0}` in `returned` stands for a result."""

    inputs: tuple[Input, ...]
    holdings: tuple[Holding, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    returned: str

    def source(self, head: str = "") -> str:
        """The text of the model file."""
        names = ", ".join(each.name for each in self.inputs)
        lines = [f'"""{head}"""', ""] if head else []
        lines += ["import math", "", "import torch", "import torch.nn as nn"]
        lines += ["import torch.nn.functional as F", "", "", "class Model(nn.Module):"]
        lines += ["    def __init__(self):", "        super().__init__()"]
        lines += [f"        {each.line}" for each in self.holdings]
        lines += ["", f"    def forward(self, {names}):"]
        lines += [f"        {step.line()}" for step in self.steps]
        lines += [f"        return {self.returned.format(*self.results)}", "", ""]
        lines += ["def get_inputs():"]
        lines += [f"    {each.name} = {each.value}" for each in self.inputs]
        lines += [f"    return [{names}]", "", "", "def get_init_inputs():", "    return []", ""]
        return "\n".join(lines)

    def pruned(self) -> Program:
        """Without the lines, attributes and inputs that no result needs."""
        needed = set(self.results)
        kept: list[Step] = []
        for step in reversed(self.steps):
            if not step.targets or needed & set(step.targets):
                kept.append(step)
                needed.update(step.operands)
        steps = tuple(reversed(kept))
        text = "\n".join([*(step.line() for step in steps), *self.results])
        used = set(_ATTRIBUTE.findall(text))
        inputs = tuple(each for each in self.inputs if each.name in needed)
        if not any("torch." in each.value for each in inputs):
            inputs = (self.inputs[0], *inputs)  # a model is given at least one tensor
        holdings = tuple(each for each in self.holdings if each.name in used)
        return replace(self, inputs=inputs, holdings=holdings, steps=steps)

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(step.op for step in self.steps)


def names_in_scope() -> dict[str, Any]:
    """What the lines of a model file may name."""
    return {"math": math, "torch": torch, "nn": nn, "F": functional}


def run_eagerly(program: Program) -> Any:
    """The results on the program's own inputs; whatever torch raises, this raises."""
    namespace: dict[str, Any] = {}
    exec(compile(program.source(), "<program>", "exec"), namespace)
    torch.manual_seed(_SEED)
    model = namespace["Model"]().eval()
    with torch.no_grad():
        return model(*namespace["get_inputs"]())
