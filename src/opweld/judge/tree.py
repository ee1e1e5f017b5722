"""Nested values: lists, tuples, dictionaries, dataclasses and other objects that hold tensors, with
tensors and scalars as leaves.
"""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


def leaves(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Each leaf with its path (`[0].hidden['k']`), depth first, in order."""
    children = _children(value, depth)
    if children is None:
        yield path, value
        return
    for step, child in children:
        yield from leaves(child, path + step, depth + 1)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensor leaves, in order."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def structure(value: Any, path: str = "", depth: int = 0) -> list[tuple[str, str]]:
    """Each container's path and kind: two values nest alike when these lists are equal.

    A dataclass or named tuple counts by its kind and field names, not by its class: the two files
    may hold a copy of the class each.
    """
    children = _children(value, depth)
    if children is None:
        return [(path, "leaf")]
    found = [(path, _kind(value))]
    for step, child in children:
        found += structure(child, path + step, depth + 1)
    return found


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any], depth: int = 0) -> Any:
    """The same nesting with `change` applied to every tensor leaf; other leaves are kept."""

    def within(part: Any) -> Any:
        return map_tensors(part, change, depth + 1)

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return _rebuild_mapping(value, {k: within(v) for k, v in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(within(item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(within(item) for item in value)
    if _is_record(value):
        names = [f.name for f in dataclasses.fields(value) if f.init]
        return dataclasses.replace(value, **{name: within(getattr(value, name)) for name in names})
    if _is_object(value, depth):
        made = copy.copy(value)
        changed = {name: within(held) for name, held in vars(value).items()}
        made.__dict__.update(changed)
        return made
    return value


def _children(value: Any, depth: int) -> list[tuple[str, Any]] | None:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, (list, tuple)):
        return [(f"[{position}]", item) for position, item in enumerate(value)]
    if _is_record(value):
        return [(f".{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value)]
    if _is_object(value, depth):
        return [(f".{name}", _as_leaf(held)) for name, held in vars(value).items()]
    return None


# Objects may hold each other.
_DEEPEST = 12
_NO_OBJECTS = (type, torch.nn.Module, torch.Tensor, types.FunctionType, types.ModuleType)


def _is_object(value: Any, depth: int) -> bool:
    """Whether it is an object of a class of its own that holds a tensor somewhere: a cache, say."""
    if isinstance(value, _NO_OBJECTS) or not hasattr(value, "__dict__") or depth > _DEEPEST:
        return False
    return any(_holds_tensor(held, depth + 1) for held in vars(value).values())


def _holds_tensor(value: Any, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, Mapping):
        return depth < _DEEPEST and any(_holds_tensor(v, depth + 1) for v in value.values())
    if isinstance(value, (list, tuple)):
        return depth < _DEEPEST and any(_holds_tensor(v, depth + 1) for v in value)
    return _is_record(value) or _is_object(value, depth)


def _as_leaf(held: Any) -> Any:
    """Devices and types by their names, which two processes compare."""
    return str(held) if isinstance(held, (torch.device, torch.dtype)) else held


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):  # of a dataclass that is a dict, fields are attributes too
        return "dataclass of a dict" if _is_record(value) else "dict"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "named tuple"
    if isinstance(value, (list, tuple)):
        return "tuple" if isinstance(value, tuple) else "list"
    return "dataclass" if _is_record(value) else "object"


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _rebuild_mapping(value: Any, items: dict[Any, Any]) -> Any:
    if _is_record(value):
        return type(value)(**items)
    return items if type(value) is dict else type(value)(items)
