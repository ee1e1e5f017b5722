"""What writes random programs: line after line, each run at once, kept where torch accepts it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tests.fuzz import operations as words
from tests.fuzz.program import Holding, Input, Program, Step, names_in_scope
from torch import nn

SIZES = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
MAX_ELEMS = 20_000
MAX_RANK = 5
FLOATS = (torch.float32,) * 8 + (torch.float16, torch.bfloat16, torch.bfloat16, torch.float64)
# Eager's vectorised fmod of float64 is far off for large quotients, and nothing else can tell.
IMPRECISE_IN_DOUBLE = ("remainder", "fmod", "div floor", "floor_divide")
INPUT_NAMES = ("x", "y", "z", "w")
# Of a result, the share of elements that are not finite above which another line is mostly tried.
MAX_SPECIAL = 0.5


class Author:
    """Writes line after line, runs each at once, and keeps those that torch accepts."""

    def __init__(self, rng: random.Random, seed: int) -> None:
        self.rng = rng
        self.inputs: list[Input] = []
        self.holdings: list[Holding] = []
        self.steps: list[Step] = []
        self.values: dict[str, torch.Tensor] = {}
        self.model = nn.Module().eval()
        self.scope = {**names_in_scope(), "self": self.model}
        self.dtype = rng.choice(FLOATS)
        self.fixed: set[int] = set()
        self.num_tensors = 0
        torch.manual_seed(seed)

    def program(self) -> Program:
        results, returned = self._results()
        program = Program(
            tuple(self.inputs), tuple(self.holdings), tuple(self.steps), results, returned
        )
        return program.pruned()

    # --- inputs ---

    def make_inputs(self) -> None:
        """Up to four tensors: one of a random shape, and others, mostly beside it."""
        frame = self._frame()
        for name in INPUT_NAMES[: self.rng.choice((1, 1, 2, 2, 3, 4))]:
            shape = frame if name == "x" else self._beside(frame)
            self.add_input(name, shape, self._input_dtype(name))

    def add_input(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        text = self._input_text(shape, dtype)
        self.inputs.append(Input(name, text))
        self.values[name] = eval(text, self.scope)
        self.fixed.add(storage(self.values[name]))
        self.num_tensors = len(self.values)

    def _frame(self) -> tuple[int, ...]:
        rank = self.rng.choice((1, 2, 2, 2, 2, 3, 3, 4))
        while True:
            shape = [self.rng.choice(SIZES) for _ in range(rank)]
            if rank > 1 and shape[0] in shape[1:] and self.rng.random() < 0.8:
                continue  # mostly the leading size differs from the others
            if self.rng.random() < 0.03:
                shape[self.rng.randrange(rank)] = 0
            if num_elems(shape) <= MAX_ELEMS // 4:
                return tuple(shape)

    def _beside(self, frame: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that fits `frame` by broadcasting, or another one."""
        kind = self.rng.random()
        if kind < 0.45:
            return frame
        if kind < 0.6:
            return frame[self.rng.randrange(len(frame) + 1) :]
        if kind < 0.85:
            return tuple(1 if self.rng.random() < 0.5 else size for size in frame)
        return self._frame()

    def _input_dtype(self, name: str) -> torch.dtype:
        kind = self.rng.random()
        if name != "x" and kind < 0.1:
            return torch.bool
        if kind < (0.05 if name == "x" else 0.25):
            return self.rng.choice((torch.int64, torch.int64, torch.int32, torch.uint8, torch.int8))
        return self.dtype if kind < 0.9 else self.rng.choice(FLOATS)

    def _input_text(self, shape: tuple[int, ...], dtype: torch.dtype) -> str:
        base, shown = self._layout(shape)
        if dtype is torch.bool:
            made = f"torch.rand({sizes(base)}) > 0.4"
            return f"({made}){shown}" if shown else made
        if not dtype.is_floating_point:
            low = 0 if dtype is torch.uint8 else -6
            kind = "" if dtype is torch.int64 else f", dtype={dtype}"
            return f"torch.randint({low}, 10, {tuple(base)}{kind}){shown}"
        function = self.rng.choice(("randn", "randn", "randn", "rand"))
        kind = "" if dtype is torch.float32 else f", dtype={dtype}"
        made = f"torch.{function}({sizes(base)}{kind}){shown}"
        return (
            made if self.rng.random() < 0.8 else f"{self.rng.choice(('3', '0.1', '40'))} * {made}"
        )

    def _layout(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
        """The shape that is made, and the view of it that is handed over."""
        kind = self.rng.random()
        if kind < 0.6 or not shape:
            return shape, ""
        if len(shape) == 4 and kind < 0.75:
            return shape, ".contiguous(memory_format=torch.channels_last)"
        if kind < 0.8 and len(shape) >= 2:
            return (*shape[:-2], shape[-1], shape[-2]), ".transpose(-1, -2)"
        if kind < 0.86:
            return (*shape[:-1], 2 * shape[-1]), "[..., ::2]"
        if kind < 0.9:
            return (shape[0] + 1, *shape[1:]), "[1:]"
        if kind < 0.94:
            return (*shape[:-1], shape[-1] + 3), f"[..., 2:{shape[-1] + 2}]"
        if kind < 0.97 and len(shape) >= 2:
            return (1, *shape[1:]), f".expand({sizes(shape)})"
        return shape, ""

    # --- lines ---

    def pick(self, accept: Callable[[torch.Tensor], bool]) -> str | None:
        """A value, a late one more often."""
        names = [name for name, value in self.values.items() if accept(value)]
        if not names:
            return None
        late = names[-3:]
        return self.rng.choice(late if self.rng.random() < 0.6 else names)

    def mate(self, first: str, accept: Callable[[torch.Tensor], bool]) -> str | None:
        """A value that broadcasts with `first`."""
        shape = self.values[first].shape
        return self.pick(lambda v: accept(v) and broadcasts(v.shape, shape))

    def hold(self, name: str, made: str, text: str, x: str, op: str, operand: bool = False) -> bool:
        line = made if made.startswith("self.") else f"self.{name} = {made}"
        operands = (x, f"self.{name}") if operand else (x,)
        try:
            exec(line, self.scope)
        except Exception:
            return False
        self.model.eval()
        if not self.attempt(text, operands, op):
            delattr(self.model, name)
            return False
        self.holdings.append(Holding(name, line))
        return True

    def form(self, table: Sequence[words.Form], *operands: str | None) -> bool:
        op, text = self.rng.choice(table)
        text = text.replace("{c}", self.rng.choice(words.SCALARS))
        return self.attempt(text, tuple(o for o in operands if o), op)

    def attempt(self, text: str, operands: tuple[str, ...], op: str, count: int = 1) -> bool:
        """Adds the line, if torch accepts it and its results are of a size to work with."""
        start = len(self.values) - self.num_tensors
        targets = tuple(_name(start + index) for index in range(count))
        step = Step(targets, text, operands, op)
        local = dict(self.values)
        try:
            exec(step.line(), self.scope, local)
        except Exception:
            return False
        made = [local[name] for name in targets]
        if op in IMPRECISE_IN_DOUBLE and any(value.dtype is torch.float64 for value in made):
            return False
        if not all(map(self._is_welcome, made)):
            return False
        self.values.update(zip(targets, made, strict=True))
        self.steps.append(step)
        return True

    def _is_welcome(self, value: Any) -> bool:
        if not isinstance(value, torch.Tensor) or value.is_complex():
            return False
        if value.numel() > MAX_ELEMS or value.dim() > MAX_RANK:
            return False
        if value.numel() == 0 and all(v.numel() for v in self.values.values()):
            return self.rng.random() < 0.2
        special = 1 - float(value.isfinite().double().mean()) if value.numel() else 0.0
        return special <= MAX_SPECIAL or self.rng.random() < 0.1

    def last(self) -> str:
        return next(reversed(self.values))

    # --- results ---

    def _results(self) -> tuple[tuple[str, ...], str]:
        """Values that no later line reads, and what holds them."""
        used = {name for step in self.steps for name in step.operands if step.targets}
        made = [name for step in self.steps for name in step.targets]
        ends = [name for name in made if name not in used] or [self.last()]
        if self.rng.random() < 0.25:
            ends.append(self.rng.choice(list(self.values)))
        chosen = list(dict.fromkeys(ends[-self.rng.choice((1, 1, 2, 3, 4)) :]))
        if len(chosen) == 1:
            form = self.rng.choice(("{0}",) * 8 + ("({0},)", "[{0}]", '{{"result": {0}}}'))
            return tuple(chosen), form
        listed = ", ".join(f"{{{index}}}" for index in range(len(chosen)))
        rest = ", ".join(f"{{{index}}}" for index in range(1, len(chosen)))
        forms = (listed, listed, listed, f"[{listed}]", f"{{{{'first': {{0}}, 'rest': [{rest}]}}}}")
        return tuple(chosen), self.rng.choice((*forms, f"{{0}}, ({rest},)"))


def _name(index: int) -> str:
    """a, b, ... t, then a2, b2, ...: no name of an input, none of torch, none of a keyword."""
    letters = "abcdeghijklmnopqrstu"
    turn = index // len(letters)
    return letters[index % len(letters)] + (str(turn + 1) if turn else "")


def sizes(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape)) or "()"


def num_elems(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def storage(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()


def broadcasts(one: Sequence[int], other: Sequence[int]) -> bool:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def is_float(value: torch.Tensor) -> bool:
    return value.is_floating_point()


def is_bool(value: torch.Tensor) -> bool:
    return value.dtype is torch.bool


def is_integer(value: torch.Tensor) -> bool:
    return not value.is_floating_point() and value.dtype is not torch.bool


def anything(value: torch.Tensor) -> bool:
    return True
