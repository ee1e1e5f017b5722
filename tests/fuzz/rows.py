"""Row programs: one or several axes are folded again and again, and what comes of it is used.

A program has a row value, from which lines take sums, largest values, positions and so on; these
come back to it. The same value is folded several times before it changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tests.fuzz import lines
from tests.fuzz import operations as words
from tests.fuzz import row_operations as row_words
from tests.fuzz.author import Author, broadcasts, is_float, num_elems

# Beside the edges of a vector, a warp and a block.
ROW_SIZES = (1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 1000, 1025, 4097)
OTHER_SIZES = (1, 2, 3, 4, 5, 8, 16, 17)
MAX_INPUT_ELEMS = 12_000
NUM_ROUNDS = (1, 2, 2, 3, 3, 4, 6)
FLOATS = (torch.float32,) * 9 + (torch.float16, torch.bfloat16)
LARGEST = 1e4
LEAST_VARIOUS, LEAST_OF_16_BITS = 0.3, 50


def write(author: Author) -> None:
    """A program of rows."""
    author.dtype = author.rng.choice(FLOATS)
    rows = _Rows(author)
    rows.make_inputs()
    for _ in range(author.rng.choice(NUM_ROUNDS)):
        rows.extend()
    rows.end()
    while not author.steps:
        lines.extend(author)


class _Rows:
    """The frame, its folded axes, and the row value that the lines so far have led to."""

    def __init__(self, author: Author) -> None:
        self.author, self.rng = author, author.rng
        self.rank = self.rng.choice((1, 2, 2, 2, 3, 3, 3, 4))
        self.axes = self._axes()
        self.value = "x"
        self.folded: list[str] = []
        # Of what shape the row is in which a value says places. Eager reads beyond a shorter one.
        self.positions: dict[str, torch.Size] = {}

    def _axes(self) -> tuple[int, ...]:
        kind, last = self.rng.random(), self.rank - 1
        if kind < 0.45 or self.rank == 1:
            return (last,)
        if kind < 0.6:
            return (0,)
        if kind < 0.8:
            return (self.rng.randrange(self.rank),)
        if kind < 0.93:
            return tuple(sorted(self.rng.sample(range(self.rank), min(2, self.rank))))
        return tuple(range(self.rank))

    # --- inputs ---

    def make_inputs(self) -> None:
        """The row value, and vectors beside it."""
        author, frame = self.author, self._frame()
        for name in ("x", "y", "z", "w")[: self.rng.choice((1, 2, 2, 3, 4))]:
            shape = frame if name == "x" else self._beside(frame)
            other = name != "x" and self.rng.random() < 0.08
            author.add_input(name, shape, torch.int64 if other else author.dtype)

    def _frame(self) -> tuple[int, ...]:
        while True:
            frame = [self.rng.choice(OTHER_SIZES) for _ in range(self.rank)]
            for axis in self.axes:
                frame[axis] = self.rng.choice(ROW_SIZES)
            if num_elems(frame) <= MAX_INPUT_ELEMS:
                return tuple(frame)

    def _beside(self, frame: tuple[int, ...]) -> tuple[int, ...]:
        """All of it, a row vector, a column vector, or one number."""
        folded = [axis in self.axes for axis in range(len(frame))]
        row = tuple(size if fold else 1 for size, fold in zip(frame, folded, strict=True))
        column = tuple(1 if fold else size for size, fold in zip(frame, folded, strict=True))
        return self.rng.choice((frame, frame, row, column, column, frame[-1:], (1,)))

    # --- lines ---

    def extend(self) -> None:
        """The row value is folded, perhaps repeatedly; something comes back; it goes on."""
        if self.rng.random() < 0.25:
            self._go_on(row_words.BEFORE)
        for _ in range(self.rng.choice((1, 1, 2))):
            self._go_on(self._between())
        for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3))):
            self._fold()
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            self._bring_back()
        kind = self.rng.random()
        if kind < 0.4:
            self._go_on(self._whole())
        elif kind < 0.5:
            self._beside_row()
        elif kind < 0.55:
            self._write_in_place()
        elif kind < 0.65 and self.rank > 1:
            self._through_module()

    def end(self) -> None:
        """What a loss, a window, a gather or any other line makes of it."""
        draws = (lines.loss, lines.gather, lines.window, lines.norm, lines.condensing)
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            self.rng.choice(draws)(self.author)

    def _between(self) -> Sequence[words.Form]:
        kind = self.rng.random()
        if kind < 0.8:
            return row_words.BETWEEN
        return words.UNARY if kind < 0.9 else words.WITH_SCALAR

    def _whole(self) -> Sequence[words.Form]:
        if self.rng.random() < 0.3:
            return row_words.LAST_AXIS
        one = len(self.axes) == 1 and self.rng.random() < 0.7
        return row_words.WHOLE if one else row_words.WHOLE_OF_AXES

    def _fold(self) -> None:
        kind, tables = self.rng.random(), row_words
        table = tables.FOLDS
        if len(self.axes) == 1 and kind < 0.35:
            table = tables.FOLDS_OF_ONE if kind < 0.25 else tables.INDICES
        elif len(self.axes) == self.rank and kind > 0.6:
            table = tables.FOLDS_OF_ALL
        # Two values of 16 bits are often equal, or are so for eager alone.
        if table is tables.INDICES and self.author.values[self.value].dtype.itemsize < 4:
            table = tables.FOLDS
        if self._form(table, self.value):
            self.folded.append(self.author.last())
            if table is tables.INDICES:
                self.positions[self.author.last()] = self.author.values[self.value].shape

    def _bring_back(self) -> None:
        """The row value together with what was folded from it, or from one before it."""
        row = self.author.values[self.value]
        fitting = [name for name in self.folded[-4:] if self._fits(name, row)]
        if not fitting:
            return
        name = self.rng.choice(fitting)
        table = row_words.WITH_INDEX if name in self.positions else row_words.TOGETHER
        if self.author.values[name].dtype is torch.bool:
            table = row_words.WITH_BOOL
        self._go_on(table, name)

    def _beside_row(self) -> None:
        row = self.author.values[self.value]
        names = [n for n, v in self.author.values.items() if is_float(v) and self._fits(n, row)]
        if names:
            self._go_on(row_words.TOGETHER, self.rng.choice(names))

    def _fits(self, name: str, row: torch.Tensor) -> bool:
        other = self.author.values[name].shape
        if name == self.value or self.positions.get(name, row.shape) != row.shape:
            return False
        return len(other) <= row.dim() and broadcasts(other, row.shape)

    def _write_in_place(self) -> None:
        author = self.author
        fixed = author.fixed | {lines.storage(author.values[n]) for n in lines.converted(author)}
        if lines.storage(author.values[self.value]) not in fixed:
            self._form(row_words.ROW_IN_PLACE, self.value, count=0)

    def _through_module(self) -> None:
        draw = lines.window if self.rng.random() < 0.5 else lines.norm
        if draw(self.author):
            self._accept()

    def _go_on(self, table: Sequence[words.Form], *others: str) -> None:
        if self._form(table, self.value, *others):
            self._accept()

    def _accept(self) -> None:
        """The row value becomes what was made last, if that is a row value too."""
        made = self.author.values[self.author.last()]
        if is_float(made) and made.dim() == self.rank and self._is_modest(made):
            self.value = self.author.last()

    def _is_modest(self, made: torch.Tensor) -> bool:
        """Of equal values all roundings are alike, so that chance decides which sum is better."""
        least = LEAST_VARIOUS * made.numel()
        if made.dtype.itemsize < 4:
            least = min(least, LEAST_OF_16_BITS)
        return made.unique().numel() >= least and bool((made.abs() < LARGEST).all())

    def _form(self, table: Sequence[words.Form], *operands: str, count: int = 1) -> bool:
        op, text = self.rng.choice(table)
        text = text.replace("{dim}", self._dim()).replace("{c}", self.rng.choice(words.SCALARS))
        return self.author.attempt(text, operands, op, count)

    def _dim(self) -> str:
        """Counted from the front or from the back."""
        back = self.rng.random() < 0.5
        axes = [axis - self.rank if back else axis for axis in self.axes]
        return str(axes[0]) if len(axes) == 1 else f"({', '.join(map(str, axes))})"
