"""Nested values: lists, tuples, dictionaries and dataclasses with tensors and scalars as leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf with its path (`[0].hidden['k']`), depth first, in order."""
    children = _children(value)
    if children is None:
        yield path, value
        return
    for step, child in children:
        yield from leaves(child, path + step)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensor leaves, in order."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def structure(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Each container's path and kind: two values nest alike when these lists are equal.

    A dataclass or named tuple counts by its kind and field names, not by its class: the two files
    may hold a copy of the class each.
    """
    children = _children(value)
    if children is None:
        return [(path, "leaf")]
    found = [(path, _kind(value))]
    for step, child in children:
        found += structure(child, path + step)
    return found


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same nesting with `change` applied to every tensor leaf; other leaves are kept."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return _rebuild_mapping(value, {k: map_tensors(v, change) for k, v in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(item, change) for item in value)
    if _is_record(value):
        names = [f.name for f in dataclasses.fields(value) if f.init]
        return dataclasses.replace(
            value, **{name: map_tensors(getattr(value, name), change) for name in names}
        )
    return value


def _children(value: Any) -> list[tuple[str, Any]] | None:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, (list, tuple)):
        return [(f"[{position}]", item) for position, item in enumerate(value)]
    if _is_record(value):
        return [(f".{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value)]
    return None


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):  # of a dataclass that is a dict, fields are attributes too
        return "dataclass of a dict" if _is_record(value) else "dict"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "named tuple"
    if isinstance(value, (list, tuple)):
        return "tuple" if isinstance(value, tuple) else "list"
    return "dataclass"


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _rebuild_mapping(value: Any, items: dict[Any, Any]) -> Any:
    if _is_record(value):
        return type(value)(**items)
    return items if type(value) is dict else type(value)(items)
