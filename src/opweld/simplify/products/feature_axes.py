"""Which axes of what views make of a product are its rows and its features."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from ...ir.expr import Size
from ...ir.graph import Node
from ...ir.ops import Op


class Role(enum.Enum):
    """What an axis counts: rows, features, or, where these are in groups, the groups and the
    members of one; nothing, where it has size 1.
    """

    ROWS = "rows"
    FEATURES = "features"
    GROUPS = "groups"
    MEMBERS = "members"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Axes:
    """The role and the size of each axis of a value. Features in groups are the first of all."""

    roles: tuple[Role, ...]
    sizes: tuple[Size, ...]

    @property
    def wide(self) -> tuple[Role, ...]:
        """The roles of axes that are not of size 1."""
        return tuple(role for role in self.roles if role is not Role.NOTHING)

    def size(self, role: Role) -> Size:
        return dict(zip(self.roles, self.sizes, strict=True)).get(role, 1)


def axes_of_product(shape: tuple[Size, ...]) -> Axes:
    """Of a product itself: its features are last."""
    return _with_roles((*(Role.ROWS for _ in shape[1:]), Role.FEATURES), shape)


def _with_roles(roles: tuple[Role, ...], sizes: tuple[Size, ...]) -> Axes:
    pairs = zip(roles, sizes, strict=True)
    return Axes(tuple(Role.NOTHING if size == 1 else role for role, size in pairs), sizes)


def through(view: Node, axes: Axes) -> Axes | None:
    """The axes of a view of a value with these; None where it mixes rows and features,
    or rows with each other.
    """
    if view.op is Op.PERMUTE:
        dims = view.attrs.dims
        rows = [dim for dim in dims if axes.roles[dim] is Role.ROWS]
        if rows != sorted(rows):
            return None
        return Axes(tuple(axes.roles[d] for d in dims), tuple(axes.sizes[d] for d in dims))
    if view.op is Op.WINDOW:
        return _windows(view, axes)
    return _reshaped(axes, view.type.shape) if view.op is Op.RESHAPE else None


def _windows(view: Node, axes: Axes) -> Axes | None:
    """Windows that do not overlap are groups."""
    a = view.attrs
    apart = a.step == a.width and a.dilation == 1 and isinstance(a.count, int)
    if not apart or axes.roles[a.dim] is not Role.FEATURES:
        return None
    roles = (*axes.roles[: a.dim], Role.GROUPS, Role.MEMBERS, *axes.roles[a.dim + 1 :])
    return _with_roles(roles, view.type.shape)


def _reshaped(axes: Axes, shape: tuple[Size, ...]) -> Axes | None:
    """Where the roles behind the rows go on to the last axes, features perhaps in groups."""
    first = axes.wide.index(Role.ROWS) if Role.ROWS in axes.wide else 0
    num_rows = axes.wide.count(Role.ROWS)
    if axes.wide[first : first + num_rows] != (Role.ROWS,) * num_rows or first:
        return _same_wide(axes, shape)
    behind = axes.wide[num_rows:]
    own = [size for role, size in zip(axes.roles, axes.sizes, strict=True) if role in behind]
    new = [size for size in shape if size != 1]
    if new[len(new) - len(own) :] == own:
        return _ending_with(behind, shape)
    if behind == (Role.FEATURES,) and len(new) > 1 and _product(new[-2:]) == own[0]:
        return _ending_with((Role.GROUPS, Role.MEMBERS), shape)
    return None


def _product(sizes: list[Size]) -> Size:
    left, right = sizes
    return left * right


def _ending_with(roles: tuple[Role, ...], shape: tuple[Size, ...]) -> Axes:
    """The last axes that are not of size 1 have these roles, those before count rows."""
    waiting, found = list(roles), list[Role]()
    for size in reversed(shape):
        if size == 1:
            found.append(Role.NOTHING)
        else:
            found.append(waiting.pop() if waiting else Role.ROWS)
    return Axes(tuple(reversed(found)), shape)


def _same_wide(axes: Axes, shape: tuple[Size, ...]) -> Axes | None:
    own = [size for size in axes.sizes if size != 1]
    if own != [size for size in shape if size != 1]:
        return None
    roles = iter(axes.wide)
    return replace(
        axes, roles=tuple(Role.NOTHING if s == 1 else next(roles) for s in shape), sizes=shape
    )
