"""The plan as a graph: groups in running order, in boxes of the submodules that they run in.

A value that the next group reads goes straight down; one that is read later goes by a lane at the
left, one for each value, which ends at its last reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from opweld.compiled import PlanRow
from opweld.report.kernels import Kernel, counted

WIDTH, ROW, GAP, INDENT, TITLE = 720.0, 40.0, 14.0, 12.0, 20.0
LANE, MARGIN = 9.0, 12.0
MOST_ROWS, MOST_INPUTS = 400, 6
ROOM_PER_LETTER = 7.3


@dataclass(frozen=True, slots=True)
class Item:
    """What stands in one row: an input, a group, or what the forward returns."""

    key: str
    title: str
    note: str
    hint: str
    module: tuple[str, ...]
    reads: tuple[str, ...]
    kernel: Kernel | None = None
    kind: str = "library"


@dataclass(frozen=True, slots=True)
class Placed:
    item: Item
    x: float
    y: float
    width: float
    height: float
    title: str
    note: str


@dataclass(frozen=True, slots=True)
class ModuleBox:
    label: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Lane:
    """A value on its way to readers further down: from its group along `x` to theirs."""

    x: float
    start: tuple[float, float]
    ends: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class PlanGraph:
    width: float
    height: float
    boxes: tuple[ModuleBox, ...]
    items: tuple[Placed, ...]
    steps: tuple[tuple[float, float, float], ...]
    lanes: tuple[Lane, ...]
    left_out: int


def plan_graph(rows: Sequence[PlanRow], kernels: Sequence[Kernel]) -> PlanGraph | None:
    """None where there is no group at all."""
    shown = [row for row in rows if not row.variant and row.kind != "view" and not _is_item(row)]
    if not shown:
        return None
    items = _items(shown[:MOST_ROWS], {kernel.name: kernel for kernel in kernels})
    tracks = _tracks(items)
    num_lanes = 1 + max((lane for _, _, lane in tracks), default=-1)
    layout = _Layout(MARGIN + num_lanes * LANE + (MARGIN if num_lanes else 0))
    layout.place(items, ())
    placed = {each.item.key: each for each in layout.items}
    steps = [_step(placed[a], placed[b], layout.spine) for a, b in _straight(items)]
    lanes = [_lane(placed, first, readers, lane) for first, readers, lane in tracks]
    return PlanGraph(
        WIDTH,
        layout.y,
        tuple(layout.boxes),
        tuple(layout.items),
        tuple(steps),
        tuple(lanes),
        max(0, len(shown) - MOST_ROWS),
    )


def _is_item(row: PlanRow) -> bool:
    return row.kind == "library" and row.ops == ("item",)


def _items(rows: Sequence[PlanRow], kernels: dict[str, Kernel]) -> list[Item]:
    inputs = list(dict.fromkeys(name for row in rows for name in row.inputs if not row.loop))
    merged = len(inputs) > MOST_INPUTS
    title = f"{len(inputs)} inputs" if merged else ""
    found = [Item(f"input {n}", n, "input", "", (), (), kind="input") for n in inputs]
    if merged:
        found = [Item("input", title, ", ".join(inputs), "", (), (), kind="input")]
    for row in rows:
        found.append(_item(row, kernels.get(row.name), merged))
    results = tuple(_key(row) for row in rows if row.is_result and not row.loop)
    if results:
        found.append(Item("result", "returns", "", "", (), results, kind="result"))
    return found


def _key(row: PlanRow) -> str:
    return f"group {row.number}"


def _item(row: PlanRow, kernel: Kernel | None, merged: bool) -> Item:
    inputs = () if row.loop else row.inputs
    of_inputs = (("input",) if inputs else ()) if merged else (f"input {n}" for n in inputs)
    places = ", ".join(row.places)
    ops = counted(row.ops)
    path = tuple(row.module.split(".")) if row.module else ()
    return Item(
        _key(row),
        row.label,
        "; ".join(filter(None, (ops, places))),
        row.reason,
        (f"each turn of {row.loop}", *path) if row.loop else path,
        (*of_inputs, *(f"group {number}" for number in row.reads)),
        kernel,
        "kernel" if kernel else row.kind,
    )


def _straight(items: Sequence[Item]) -> list[tuple[str, str]]:
    """Values that the next row reads."""
    pairs = zip(items, items[1:], strict=False)
    return [(a.key, b.key) for a, b in pairs if a.key in b.reads]


def _tracks(items: Sequence[Item]) -> list[tuple[str, list[str], int]]:
    """Of each value that is read further down its readers, and the number of its lane."""
    order = {item.key: k for k, item in enumerate(items)}
    readers: dict[str, list[str]] = {}
    for item in items:
        for key in item.reads:
            if key in order and order[item.key] > order[key] + 1:
                readers.setdefault(key, []).append(item.key)
    found: list[tuple[str, list[str], int]] = []
    ends: list[int] = []
    for key in sorted(readers, key=order.__getitem__):
        last = max(order[reader] for reader in readers[key])
        free = (lane for lane, end in enumerate(ends) if end <= order[key])
        lane = next(free, len(ends))
        ends[lane : lane + 1] = [last]
        found.append((key, readers[key], lane))
    return found


def _step(above: Placed, below: Placed, x: float) -> tuple[float, float, float]:
    return x, above.y + above.height, below.y


def _lane(placed: dict[str, Placed], first: str, readers: list[str], lane: int) -> Lane:
    start = placed[first]
    ends = tuple((placed[r].x, placed[r].y + placed[r].height / 2 - 6) for r in readers)
    at = MARGIN + lane * LANE
    return Lane(at, (start.x, start.y + start.height / 2 + 6), ends)


@dataclass(slots=True)
class _Layout:
    """Places rows from the top down; `left` is where the boxes begin."""

    left: float
    y: float = 4.0
    spine: float = 0.0
    items: list[Placed] = field(default_factory=list)
    boxes: list[ModuleBox] = field(default_factory=list)

    def place(self, items: Sequence[Item], within: tuple[str, ...], depth: int = 0) -> None:
        """Rows that run in the submodule `within`: neighbours of one deeper module share a box."""
        self.spine = max(self.spine, self.left + depth * INDENT + 24)
        k = 0
        while k < len(items):
            path = items[k].module
            if len(path) <= len(within):
                self._put(items[k], depth)
                k += 1
                continue
            end = k
            while (
                end < len(items)
                and items[end].module[: len(within) + 1] == (path[: len(within) + 1])
            ):
                end += 1
            self._box(items[k:end], within, depth)
            k = end

    def _box(self, items: Sequence[Item], within: tuple[str, ...], depth: int) -> None:
        """One box, named by the longest path that all its rows share."""
        shared = items[0].module
        for item in items:
            while item.module[: len(shared)] != shared:
                shared = shared[:-1]
        x, top = self.left + depth * INDENT, self.y
        self.y += TITLE + 4
        position = len(self.boxes)
        self.place(items, shared, depth + 1)
        box = ModuleBox(
            _fitted(".".join(shared), 600),
            x,
            top,
            WIDTH - 4 - 2 * depth * INDENT - (self.left),
            self.y - top - GAP + 10,
        )
        self.boxes.insert(position, box)
        self.y += 10

    def _put(self, item: Item, depth: int) -> None:
        x = self.left + depth * INDENT
        width = WIDTH - 4 - self.left - 2 * depth * INDENT
        height = ROW if item.kernel or item.kind in ("library", "loop") else ROW * 0.65
        title = _fitted(item.title, width * 0.55)
        used = (len(title) + 4) * ROOM_PER_LETTER * 1.12
        note = _fitted(item.note, width - used - 40)
        self.items.append(Placed(item, x, self.y, width, height, title, note))
        self.y += height + GAP


def _fitted(text: str, width: float) -> str:
    most = max(3, int(width / ROOM_PER_LETTER))
    return text if len(text) <= most else f"{text[: most - 1]}…"
