"""The kinds of line of a random model: each draws operands and a text that may fit them.

Each returns whether torch took the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from tests.fuzz import operations as words
from tests.fuzz import row_operations as row_words
from tests.fuzz.author import (
    Author,
    anything,
    is_bool,
    is_float,
    is_integer,
    sizes,
    storage,
)
from tests.fuzz.program import Input

NUM_LINES = (2, 3, 4, 6, 8, 8, 10, 12, 16, 24)
CONVERSIONS = ("half", "float", "double", "bfloat16", "to dtype", "type_as")


def unary(author: Author) -> bool:
    x = author.pick(is_float)
    return x is not None and author.form(words.UNARY, x)


def in_domain(author: Author) -> bool:
    x = author.pick(is_float)
    if x is None:
        return False
    prepare, functions = author.rng.choice(words.DOMAINS)
    name = author.rng.choice(functions)
    if not author.attempt(prepare, (x,), word(prepare)):
        return False
    text = author.rng.choice((f"torch.{name}({{0}})", f"{{0}}.{name}()"))
    return author.attempt(text, (author.last(),), name)


def module(author: Author) -> bool:
    x = author.pick(is_float)
    if x is None:
        return False
    op, made = author.rng.choice(words.MODULES)
    name = f"act{len(author.holdings) + 1}"
    kind = "" if op != "PReLU" else keyword_dtype(author.values[x].dtype, "dtype=", "nn.PReLU(")
    made = f"nn.PReLU({kind})" if op == "PReLU" else made
    return author.hold(name, made, f"self.{name}({{0}})", x, op)


def linear(author: Author) -> bool:
    x = author.pick(lambda v: is_float(v) and v.dim() >= 2 and 0 < v.shape[-1] <= 129)
    if x is None:
        return False
    value, out = author.values[x], author.rng.choice((1, 3, 8, 16, 17))
    bias = author.rng.choice(("", "", ", bias=False"))
    kind = keyword_dtype(value.dtype, ", dtype=")
    name = f"linear{len(author.holdings) + 1}"
    made = f"nn.Linear({value.shape[-1]}, {out}{bias}{kind})"
    return author.hold(name, made, f"self.{name}({{0}})", x, "Linear")


def parameter(author: Author) -> bool:
    """A parameter or buffer that broadcasts, as an operand."""
    x = author.pick(is_float)
    if x is None:
        return False
    value = author.values[x]
    shape = tuple(1 if author.rng.random() < 0.3 else size for size in value.shape)
    shape = shape[author.rng.randrange(len(shape) + 1) :] if author.rng.random() < 0.7 else shape
    kind = keyword_dtype(value.dtype, ", dtype=")
    tensor = f"torch.{author.rng.choice(('randn', 'rand'))}({sizes(shape)}{kind})"
    number = len(author.holdings) + 1
    op, text = author.rng.choice(words.BINARY)
    if author.rng.random() < 0.6:
        name = f"weight{number}"
        return author.hold(name, f"nn.Parameter({tensor})", text, x, op, operand=True)
    name = f"buffer{number}"
    line = f'self.register_buffer("{name}", {tensor})'
    return author.hold(name, line, text, x, op, operand=True)


def scalar(author: Author) -> bool:
    x = author.pick(is_float)
    if x is None:
        return False
    if author.rng.random() < 0.06:
        return argument(author, x)
    table = words.WITH_SCALAR if author.rng.random() < 0.85 else words.COMPARE_SCALAR
    op, text = author.rng.choice(table)
    return author.attempt(text.replace("{c}", author.rng.choice(words.SCALARS)), (x,), op)


def argument(author: Author, x: str) -> bool:
    """A number that the forward is given."""
    if "scale" not in author.scope:
        author.scope["scale"] = author.rng.choice((0.5, 2, 1.25))
        author.inputs.append(Input("scale", str(author.scope["scale"])))
    op, text = author.rng.choice(words.WITH_ARGUMENT)
    return author.attempt(text, (x, "scale"), op)


def binary(author: Author) -> bool:
    x = author.pick(is_float)
    y = author.mate(x, is_float) if x else None
    if x is None or y is None:
        return False
    return author.form(words.BINARY if author.rng.random() < 0.85 else words.COMPARE, x, y)


def ternary(author: Author) -> bool:
    x = author.pick(is_float)
    y = author.mate(x, is_float) if x else None
    z = author.mate(x, is_float) if x else None
    return None not in (x, y, z) and author.form(words.TERNARY, x, y, z)


def boolean(author: Author) -> bool:
    x = author.pick(is_bool)
    if x is None:
        other = author.pick(is_float)
        return other is not None and author.form(words.PREDICATES, other)
    kind = author.rng.random()
    if kind < 0.3:
        return author.form(words.OF_BOOLS, x)
    y = author.mate(x, is_bool if kind < 0.5 else is_float)
    table = words.OF_TWO_BOOLS if kind < 0.5 else words.OF_BOOL_AND_OTHER
    return y is not None and author.form(table, x, y)


def integer(author: Author) -> bool:
    x = author.pick(is_integer)
    if x is None:
        return False
    y = author.mate(x, is_integer)
    if y is not None and author.rng.random() < 0.35:
        return author.form(words.OF_TWO_INTEGERS, x, y)
    y = author.mate(x, is_float)
    if y is not None and author.rng.random() < 0.3:
        return author.form(words.BINARY, x, y)
    return author.form(words.OF_INTEGERS, x)


def cast(author: Author) -> bool:
    x = author.pick(is_float)
    if x is None:
        return False
    if author.rng.random() < 0.7:
        return author.form(words.CASTS, x)
    prepare, cast = author.rng.choice(words.TO_INTEGERS)
    return author.attempt(prepare, (x,), "nan_to_num clamp") and author.attempt(
        cast, (author.last(),), "to dtype"
    )


def view(author: Author) -> bool:
    x = author.pick(lambda v: v.dim() > 0)
    return x is not None and author.form(words.VIEWS, x)


def join(author: Author) -> bool:
    x = author.pick(lambda v: v.dim() > 0)
    if x is None:
        return False
    rank, dtype = author.values[x].dim(), author.values[x].dtype
    same = author.rng.random() < 0.8
    y = author.pick(lambda v: v.dim() == rank and (v.dtype is dtype or not same))
    return y is not None and author.form(words.JOINS, x, y)


def split(author: Author) -> bool:
    x = author.pick(lambda v: v.dim() > 0)
    y = author.mate(x, anything) if x else None
    if x is None or y is None:
        return False
    op, text, count = author.rng.choice(words.SPLITS)
    return author.attempt(text, (x, y) if "{1}" in text else (x,), op, count)


def condensing(author: Author) -> bool:
    x = author.pick(lambda v: is_float(v) and v.dim() > 0)
    if x is None:
        return False
    y = author.mate(x, is_float) if author.rng.random() < 0.2 else None
    return author.form(words.CONDENSING_TWO, x, y) if y else author.form(words.CONDENSING, x)


def fold(author: Author) -> bool:
    """Over an axis of any place, which is kept, so that a next line may take both."""
    x = author.pick(lambda v: is_float(v) and v.dim() > 0)
    if x is None:
        return False
    axis = author.rng.randrange(-1, author.values[x].dim())
    table = author.rng.choice((row_words.FOLDS, row_words.FOLDS_OF_ONE, row_words.WHOLE))
    op, text = author.rng.choice(table)
    return author.attempt(text.replace("{dim}", str(axis)), (x,), op)


def window(author: Author) -> bool:
    x = author.pick(lambda v: is_float(v) and v.dim() in (2, 3, 4))
    return x is not None and author.form(row_words.WINDOWS, x)


def norm(author: Author) -> bool:
    """By a module, whose statistics and weights are the model's."""
    x = author.pick(lambda v: is_float(v) and v.dim() >= 2)
    if x is None:
        return False
    shape, kind = author.values[x].shape, keyword_dtype(author.values[x].dtype, ", dtype=")
    op, made = author.rng.choice(row_words.NORMS)
    name = f"norm{len(author.holdings) + 1}"
    made = made.format(c=shape[1], n=shape[-1], kind=kind)
    return author.hold(name, made, f"self.{name}({{0}})", x, op)


def gather(author: Author) -> bool:
    x = author.pick(lambda v: is_float(v) and v.dim() > 0)
    y = author.pick(is_integer)
    if x is None:
        return False
    if y is None or author.rng.random() < 0.3:
        return author.form(row_words.GATHERS_OF_ONE, x)
    return author.form(row_words.GATHERS, x, y)


def loss(author: Author) -> bool:
    """Of two values of one shape, mostly."""
    x = author.pick(lambda v: is_float(v) and v.dim() >= 1)
    if x is None:
        return False
    shape = author.values[x].shape
    same = author.rng.random() < 0.8
    y = (
        author.pick(lambda v: is_float(v) and v.shape == shape)
        if same
        else author.mate(x, is_float)
    )
    return y is not None and author.form(row_words.LOSSES, x, y)


def library(author: Author) -> bool:
    x = author.pick(lambda v: is_float(v) and v.dim() > 0)
    return x is not None and author.form(words.LIBRARY, x)


def in_place(author: Author) -> bool:
    """Mostly into what the forward itself made."""
    careful = author.rng.random() < 0.9
    kept = author.fixed if careful else set()
    kept = kept | {storage(author.values[name]) for name in converted(author)}
    x = author.pick(lambda v: is_float(v) and storage(v) not in kept)
    if x is None:
        return False
    y = author.mate(x, is_float)
    if y is not None and author.rng.random() < 0.5:
        op, text = author.rng.choice(words.IN_PLACE_WITH)
        return author.attempt(text, (x, y), op, 0)
    op, text = author.rng.choice(words.IN_PLACE)
    return author.attempt(text, (x,), op, 0)


def converted(author: Author) -> list[str]:
    """Values on either side of a conversion, which is none in the judge's float64 run: what is
    memory of its own here would be shared there."""
    steps = [step for step in author.steps if step.op in CONVERSIONS]
    names = [name for step in steps for name in (*step.targets, *step.operands)]
    return [name for name in names if name in author.values]


def word(text: str) -> str:
    found = re.findall(r"(?:\.|torch\.)([a-z_]+)\(", text)
    return str(found[0]) if found else "add"


def keyword_dtype(dtype: torch.dtype, before: str, _: str = "") -> str:
    return "" if dtype is torch.float32 else f"{before}{dtype}"


Kinds = tuple[tuple[Callable[[Author], bool], int], ...]
"""What draws a line, and how often it is drawn."""

KINDS: Kinds = (
    (unary, 16),
    (in_domain, 5),
    (module, 5),
    (linear, 2),
    (parameter, 6),
    (scalar, 14),
    (binary, 16),
    (ternary, 4),
    (boolean, 8),
    (integer, 7),
    (cast, 6),
    (view, 20),
    (join, 6),
    (split, 4),
    (condensing, 12),
    (fold, 6),
    (window, 3),
    (norm, 2),
    (gather, 2),
    (loss, 2),
    (library, 2),
    (in_place, 7),
)


def write(author: Author) -> None:
    """A program of any lines."""
    author.make_inputs()
    for _ in range(author.rng.choice(NUM_LINES)):
        extend(author)
    while not author.steps:
        extend(author)


def extend(author: Author) -> None:
    """One more line, or several that belong together; none where nothing drawn fits."""
    draws, weights = zip(*KINDS, strict=True)
    for _ in range(12):
        if author.rng.choices(draws, weights)[0](author):
            return
