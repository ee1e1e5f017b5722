"""Random model files: a seed names a program (with one version of torch)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from tests.fuzz import operations as words
from tests.fuzz.program import Holding, Input, Program, Step, names_in_scope
from torch import nn

T = TypeVar("T")
SIZES = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
MAX_ELEMS = 20_000
MAX_RANK = 5
NUM_STEPS = (2, 3, 4, 6, 8, 8, 10, 12, 16, 24)
FLOATS = (torch.float32,) * 8 + (torch.float16, torch.bfloat16, torch.bfloat16, torch.float64)
# Eager's vectorised fmod of float64 is far off for large quotients, and nothing else can tell.
IMPRECISE_IN_DOUBLE = ("remainder", "fmod", "div floor", "floor_divide")
CONVERSIONS = ("half", "float", "double", "bfloat16", "to dtype", "type_as")
INPUT_NAMES = ("x", "y", "z", "w")
# Of a result, the share of elements that are not finite above which another line is mostly tried.
MAX_SPECIAL = 0.5


def generate(seed: int) -> Program:
    """The program of a seed, valid on its own inputs."""
    return _Author(random.Random(seed), seed).program()


class _Author:
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
        with torch.no_grad():
            self._make_inputs()
            for _ in range(self.rng.choice(NUM_STEPS)):
                self._extend()
            while not self.steps:
                self._extend()
        results, returned = self._results()
        program = Program(
            tuple(self.inputs), tuple(self.holdings), tuple(self.steps), results, returned
        )
        return program.pruned()

    # --- inputs ---

    def _make_inputs(self) -> None:
        frame = self._frame()
        for name in INPUT_NAMES[: self.rng.choice((1, 1, 2, 2, 3, 4))]:
            shape = frame if name == "x" else self._beside(frame)
            text = self._input_text(shape, self._input_dtype(name))
            self.inputs.append(Input(name, text))
            self.values[name] = eval(text, self.scope)
            self.fixed.add(_storage(self.values[name]))
        self.num_tensors = len(self.values)

    def _frame(self) -> tuple[int, ...]:
        rank = self.rng.choice((1, 2, 2, 2, 2, 3, 3, 4))
        while True:
            shape = [self.rng.choice(SIZES) for _ in range(rank)]
            if rank > 1 and shape[0] in shape[1:] and self.rng.random() < 0.8:
                continue  # mostly the leading size differs from the others
            if self.rng.random() < 0.03:
                shape[self.rng.randrange(rank)] = 0
            if _num_elems(shape) <= MAX_ELEMS // 4:
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
            made = f"torch.rand({_sizes(base)}) > 0.4"
            return f"({made}){shown}" if shown else made
        if not dtype.is_floating_point:
            low = 0 if dtype is torch.uint8 else -6
            kind = "" if dtype is torch.int64 else f", dtype={dtype}"
            return f"torch.randint({low}, 10, {tuple(base)}{kind}){shown}"
        function = self.rng.choice(("randn", "randn", "randn", "rand"))
        kind = "" if dtype is torch.float32 else f", dtype={dtype}"
        made = f"torch.{function}({_sizes(base)}{kind}){shown}"
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
            return (1, *shape[1:]), f".expand({_sizes(shape)})"
        return shape, ""

    # --- lines ---

    def _extend(self) -> None:
        """One more line, or several that belong together; none where nothing drawn fits."""
        for _ in range(12):
            draw = self.rng.choices(_KINDS, _WEIGHTS)[0]
            if draw(self):
                return

    def _pick(self, accept: Callable[[torch.Tensor], bool]) -> str | None:
        """A value, a late one more often."""
        names = [name for name, value in self.values.items() if accept(value)]
        if not names:
            return None
        late = names[-3:]
        return self.rng.choice(late if self.rng.random() < 0.6 else names)

    def _mate(self, first: str, accept: Callable[[torch.Tensor], bool]) -> str | None:
        """A value that broadcasts with `first`."""
        shape = self.values[first].shape
        return self._pick(lambda v: accept(v) and _broadcasts(v.shape, shape))

    def _unary(self) -> bool:
        x = self._pick(_is_float)
        return x is not None and self._form(words.UNARY, x)

    def _in_domain(self) -> bool:
        x = self._pick(_is_float)
        if x is None:
            return False
        prepare, functions = self.rng.choice(words.DOMAINS)
        name = self.rng.choice(functions)
        if not self._try(prepare, (x,), _word(prepare)):
            return False
        text = self.rng.choice((f"torch.{name}({{0}})", f"{{0}}.{name}()"))
        return self._try(text, (self._last(),), name)

    def _module(self) -> bool:
        x = self._pick(_is_float)
        if x is None:
            return False
        op, made = self.rng.choice(words.MODULES)
        name = f"act{len(self.holdings) + 1}"
        kind = "" if op != "PReLU" else _keyword_dtype(self.values[x].dtype, "dtype=", "nn.PReLU(")
        made = f"nn.PReLU({kind})" if op == "PReLU" else made
        return self._with_holding(name, made, f"self.{name}({{0}})", x, op)

    def _linear(self) -> bool:
        x = self._pick(lambda v: _is_float(v) and v.dim() >= 2 and 0 < v.shape[-1] <= 129)
        if x is None:
            return False
        value, out = self.values[x], self.rng.choice((1, 3, 8, 16, 17))
        bias = self.rng.choice(("", "", ", bias=False"))
        kind = _keyword_dtype(value.dtype, ", dtype=")
        name = f"linear{len(self.holdings) + 1}"
        made = f"nn.Linear({value.shape[-1]}, {out}{bias}{kind})"
        return self._with_holding(name, made, f"self.{name}({{0}})", x, "Linear")

    def _parameter(self) -> bool:
        """A parameter or buffer that broadcasts, as an operand."""
        x = self._pick(_is_float)
        if x is None:
            return False
        value = self.values[x]
        shape = tuple(1 if self.rng.random() < 0.3 else size for size in value.shape)
        shape = shape[self.rng.randrange(len(shape) + 1) :] if self.rng.random() < 0.7 else shape
        kind = _keyword_dtype(value.dtype, ", dtype=")
        tensor = f"torch.{self.rng.choice(('randn', 'rand'))}({_sizes(shape)}{kind})"
        number = len(self.holdings) + 1
        op, text = self.rng.choice(words.BINARY)
        if self.rng.random() < 0.6:
            name = f"weight{number}"
            return self._with_holding(name, f"nn.Parameter({tensor})", text, x, op, operand=True)
        name = f"buffer{number}"
        line = f'self.register_buffer("{name}", {tensor})'
        return self._with_holding(name, line, text, x, op, operand=True)

    def _with_holding(
        self, name: str, made: str, text: str, x: str, op: str, operand: bool = False
    ) -> bool:
        line = made if made.startswith("self.") else f"self.{name} = {made}"
        operands = (x, f"self.{name}") if operand else (x,)
        try:
            exec(line, self.scope)
        except Exception:
            return False
        self.model.eval()
        if not self._try(text, operands, op):
            delattr(self.model, name)
            return False
        self.holdings.append(Holding(name, line))
        return True

    def _scalar(self) -> bool:
        x = self._pick(_is_float)
        if x is None:
            return False
        if self.rng.random() < 0.06:
            return self._argument(x)
        table = words.WITH_SCALAR if self.rng.random() < 0.85 else words.COMPARE_SCALAR
        op, text = self.rng.choice(table)
        return self._try(text.replace("{c}", self.rng.choice(words.SCALARS)), (x,), op)

    def _argument(self, x: str) -> bool:
        """A number that the forward is given."""
        if "scale" not in self.scope:
            self.scope["scale"] = self.rng.choice((0.5, 2, 1.25))
            self.inputs.append(Input("scale", str(self.scope["scale"])))
        op, text = self.rng.choice(words.WITH_ARGUMENT)
        return self._try(text, (x, "scale"), op)

    def _binary(self) -> bool:
        x = self._pick(_is_float)
        y = self._mate(x, _is_float) if x else None
        if x is None or y is None:
            return False
        return self._form(words.BINARY if self.rng.random() < 0.85 else words.COMPARE, x, y)

    def _ternary(self) -> bool:
        x = self._pick(_is_float)
        y = self._mate(x, _is_float) if x else None
        z = self._mate(x, _is_float) if x else None
        return None not in (x, y, z) and self._form(words.TERNARY, x, y, z)

    def _boolean(self) -> bool:
        x = self._pick(_is_bool)
        if x is None:
            other = self._pick(_is_float)
            return other is not None and self._form(words.PREDICATES, other)
        kind = self.rng.random()
        if kind < 0.3:
            return self._form(words.OF_BOOLS, x)
        y = self._mate(x, _is_bool if kind < 0.5 else _is_float)
        table = words.OF_TWO_BOOLS if kind < 0.5 else words.OF_BOOL_AND_OTHER
        return y is not None and self._form(table, x, y)

    def _integer(self) -> bool:
        x = self._pick(_is_integer)
        if x is None:
            return False
        y = self._mate(x, _is_integer)
        if y is not None and self.rng.random() < 0.35:
            return self._form(words.OF_TWO_INTEGERS, x, y)
        y = self._mate(x, _is_float)
        if y is not None and self.rng.random() < 0.3:
            return self._form(words.BINARY, x, y)
        return self._form(words.OF_INTEGERS, x)

    def _cast(self) -> bool:
        x = self._pick(_is_float)
        if x is None:
            return False
        if self.rng.random() < 0.7:
            return self._form(words.CASTS, x)
        prepare, cast = self.rng.choice(words.TO_INTEGERS)
        return self._try(prepare, (x,), "nan_to_num clamp") and self._try(
            cast, (self._last(),), "to dtype"
        )

    def _view(self) -> bool:
        x = self._pick(lambda v: v.dim() > 0)
        return x is not None and self._form(words.VIEWS, x)

    def _join(self) -> bool:
        x = self._pick(lambda v: v.dim() > 0)
        if x is None:
            return False
        rank, dtype = self.values[x].dim(), self.values[x].dtype
        same = self.rng.random() < 0.8
        y = self._pick(lambda v: v.dim() == rank and (v.dtype is dtype or not same))
        return y is not None and self._form(words.JOINS, x, y)

    def _split(self) -> bool:
        x = self._pick(lambda v: v.dim() > 0)
        y = self._mate(x, _anything) if x else None
        if x is None or y is None:
            return False
        op, text, count = self.rng.choice(words.SPLITS)
        return self._try(text, (x, y) if "{1}" in text else (x,), op, count)

    def _condensing(self) -> bool:
        x = self._pick(lambda v: _is_float(v) and v.dim() > 0)
        if x is None:
            return False
        y = self._mate(x, _is_float) if self.rng.random() < 0.2 else None
        return self._form(words.CONDENSING_TWO, x, y) if y else self._form(words.CONDENSING, x)

    def _library(self) -> bool:
        x = self._pick(lambda v: _is_float(v) and v.dim() > 0)
        return x is not None and self._form(words.LIBRARY, x)

    def _in_place(self) -> bool:
        """Mostly into what the forward itself made."""
        careful = self.rng.random() < 0.9
        kept = self.fixed if careful else set()
        kept = kept | {_storage(self.values[name]) for name in self._converted()}
        x = self._pick(lambda v: _is_float(v) and _storage(v) not in kept)
        if x is None:
            return False
        y = self._mate(x, _is_float)
        if y is not None and self.rng.random() < 0.5:
            op, text = self.rng.choice(words.IN_PLACE_WITH)
            return self._try(text, (x, y), op, 0)
        op, text = self.rng.choice(words.IN_PLACE)
        return self._try(text, (x,), op, 0)

    def _converted(self) -> list[str]:
        """Values on either side of a conversion, which is none in the judge's float64 run: what is
        memory of its own here would be shared there."""
        steps = [step for step in self.steps if step.op in CONVERSIONS]
        names = [name for step in steps for name in (*step.targets, *step.operands)]
        return [name for name in names if name in self.values]

    def _form(self, table: Sequence[words.Form], *operands: str | None) -> bool:
        op, text = self.rng.choice(table)
        text = text.replace("{c}", self.rng.choice(words.SCALARS))
        return self._try(text, tuple(o for o in operands if o), op)

    def _try(self, text: str, operands: tuple[str, ...], op: str, count: int = 1) -> bool:
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

    def _last(self) -> str:
        return next(reversed(self.values))

    # --- results ---

    def _results(self) -> tuple[tuple[str, ...], str]:
        """Values that no later line reads, and what holds them."""
        used = {name for step in self.steps for name in step.operands if step.targets}
        made = [name for step in self.steps for name in step.targets]
        ends = [name for name in made if name not in used] or [self._last()]
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


_KINDS: tuple[Callable[[_Author], bool], ...] = (
    _Author._unary,
    _Author._in_domain,
    _Author._module,
    _Author._linear,
    _Author._parameter,
    _Author._scalar,
    _Author._binary,
    _Author._ternary,
    _Author._boolean,
    _Author._integer,
    _Author._cast,
    _Author._view,
    _Author._join,
    _Author._split,
    _Author._condensing,
    _Author._library,
    _Author._in_place,
)
_WEIGHTS = (16, 5, 5, 2, 6, 14, 16, 4, 8, 7, 6, 20, 6, 4, 12, 2, 7)


def _name(index: int) -> str:
    """a, b, ... t, then a2, b2, ...: no name of an input, none of torch, none of a keyword."""
    letters = "abcdeghijklmnopqrstu"
    turn = index // len(letters)
    return letters[index % len(letters)] + (str(turn + 1) if turn else "")


def _word(text: str) -> str:
    found = re.findall(r"(?:\.|torch\.)([a-z_]+)\(", text)
    return str(found[0]) if found else "add"


def _sizes(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape)) or "()"


def _keyword_dtype(dtype: torch.dtype, before: str, _: str = "") -> str:
    return "" if dtype is torch.float32 else f"{before}{dtype}"


def _num_elems(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _storage(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()


def _broadcasts(one: Sequence[int], other: Sequence[int]) -> bool:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _is_float(value: torch.Tensor) -> bool:
    return value.is_floating_point()


def _is_bool(value: torch.Tensor) -> bool:
    return value.dtype is torch.bool


def _is_integer(value: torch.Tensor) -> bool:
    return not value.is_floating_point() and value.dtype is not torch.bool


def _anything(value: torch.Tensor) -> bool:
    return True
