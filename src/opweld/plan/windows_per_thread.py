"""How many windows a thread folds together, where they share what they read.

They are above each other, and behind each other. Beside each other they would take threads apart
that read neighbours: each access would fill more of the cache's lines.
"""

from __future__ import annotations

from ..ir.attrs import WindowAttrs
from ..ir.ops import Op
from ..ir.plan import Group, Rows

Together = tuple[int, int]
"""Windows above each other, and layers of them behind each other."""

# What is tried in this order: where a window begins at the second element of the one before, where
# it begins later, and where what is folded of each window is more than a number of 32 bits.
_DENSE: tuple[Together, ...] = ((8, 1), (4, 1), (2, 1))
_DENSE_LAYERS: tuple[Together, ...] = ((4, 4), (4, 2), *_DENSE)
_SPARSE: tuple[Together, ...] = ((4, 1), (2, 1))
_SPARSE_LAYERS: tuple[Together, ...] = ((4, 2), *_SPARSE)
# So many elements of more than four windows are written out one after another.
_WRITTEN_OUT_ELEMS = 256


def windows_together(group: Group, rows: Rows) -> Together:
    """(1, 1) where they do not overlap."""
    above, behind = _overlapping(group, rows)
    if above is None:
        return 1, 1
    choices = _choices(rows, above, behind)
    return next((c for c in choices if _fit(rows, above, behind, c)), (1, 1))


def _overlapping(group: Group, rows: Rows) -> list[WindowAttrs | None]:
    """The windows above and behind each other, if they overlap."""
    attrs = [node.attrs for node in group.nodes if isinstance(node.attrs, WindowAttrs)]
    of_axis = {window.dim: window for window in attrs if window.count != 1}
    windows = [of_axis[dim] for dim in sorted(of_axis, reverse=True)]
    kept = [size for axis, size in enumerate(rows.space) if axis not in rows.axes and size != 1]
    found = list[WindowAttrs | None]()
    for size in (*kept[-1:-4:-1], *(1, 1, 1))[:3]:  # beside, above and behind each other
        window = windows.pop(0) if windows and windows[0].count == size else None
        found.append(window if window and _step(window) else None)
    return found[1:]


def _step(window: WindowAttrs) -> int:
    """The element of a window that is the first of the next, or 0."""
    step, rest = divmod(window.step, window.dilation)
    return step if rest == 0 and step < window.width else 0


def _choices(rows: Rows, above: WindowAttrs, behind: WindowAttrs | None) -> tuple[Together, ...]:
    folds = [node for level in rows.levels for node in level]
    wide = any(n.op in (Op.ARGMAX, Op.ARGMIN) or n.type.dtype.itemsize_bytes > 4 for n in folds)
    if wide or len(folds) > 1:
        return _SPARSE
    dense = _step(above) == 1
    if behind is None:
        return _DENSE if dense else _SPARSE
    return _DENSE_LAYERS if dense and _step(behind) == 1 else _SPARSE_LAYERS


def _fit(rows: Rows, above: WindowAttrs, behind: WindowAttrs | None, together: Together) -> bool:
    """Whether few are folded twice, and many are not too long a text."""
    elems = rows.length
    assert isinstance(elems, int), "a row alone is of known length"
    for window, count in zip((above, behind), together, strict=True):
        if count > 1 and window:
            if not isinstance(window.count, int) or not _few_twice(window.count, count):
                return False
            elems = elems // window.width * (window.width + _step(window) * (count - 1))
    return together[0] * together[1] <= 4 or elems <= _WRITTEN_OUT_ELEMS


def _few_twice(windows: int, together: int) -> bool:
    """The last ones together are as many as the others, so that some may be folded twice."""
    return together <= windows and -(-windows // together) * together <= windows * 5 // 4
