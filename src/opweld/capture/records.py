"""Objects that a forward returns, as they are made of their fields.

Tuples, lists and dicts are spelled out; every other object is made by its type, called with its
fields by their names: dataclasses, named tuples, and dicts of a type of their own, such as the
outputs of Hugging Face's models, which are both dataclass and dict. What `torch.max` and others
return along an axis is made of the tuple of its values. torch.export goes into objects
of types that are registered with torch.utils._pytree; types of these kinds that are not are
registered here. An object of a class of its own is made without its constructor, of all attributes
that it has.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch._functorch._aot_autograd.utils as flattening
from torch import nn
from torch.utils import _pytree as pytree

_UNKNOWN = re.compile(r"Found <class '([\w.]+)'> in output, which is not a known type")


def fields_of(value: Any) -> tuple[str, ...] | None:
    """The names by which an object is made again; None for one that is more than its fields."""
    if "<locals>" in type(value).__qualname__:
        return None
    if _is_of_torch(value):
        return ("sequence",)
    if isinstance(value, tuple) and type(value).__bases__ == (tuple,):
        return getattr(value, "_fields", None)
    if isinstance(value, dict):
        return _keys_of(value)
    if not dataclasses.is_dataclass(value) or type(value).__bases__ != (object,):
        return None
    fields = dataclasses.fields(value)
    own = hasattr(value, "__post_init__") or not all(each.init for each in fields)
    return None if own else tuple(each.name for each in fields)


def _is_of_torch(value: Any) -> bool:
    """Whether it is a result of an operation with several, such as `torch.return_types.max`."""
    return isinstance(value, tuple) and type(value).__module__ == "torch.return_types"


def attributes_of(value: Any) -> tuple[str, ...] | None:
    """The names of all that an object holds; None for one that holds more than attributes."""
    cls = type(value)
    found = _is_plain_class(cls) and "<locals>" not in cls.__qualname__
    return tuple(vars(value)) if found and all(map(str.isidentifier, vars(value))) else None


def _is_plain_class(cls: type) -> bool:
    sizes = cls.__basicsize__ == _Plain.__basicsize__ and cls.__dictoffset__ != 0
    return sizes and not issubclass(cls, _NO_OBJECTS)


class _Plain:
    """Has the size of an object that has attributes and nothing else."""


_NO_OBJECTS = (type, nn.Module, torch.Tensor)
CONSTANTS = (bool, int, float, str, type(None), torch.dtype, torch.device)
"""What an object may hold beside tensors and what has them."""


def _keys_of(value: dict[Any, Any]) -> tuple[str, ...] | None:
    """Those of a dict that its type makes of them: the same items in the same order."""
    keys = tuple(value)
    if not all(isinstance(key, str) and key.isidentifier() for key in keys):
        return None
    try:
        again = type(value)(**{key: value[key] for key in keys})
    except Exception:  # its constructor is the user's
        return None
    same = type(again) is type(value) and tuple(again) == keys
    return keys if same and all(again[key] is value[key] for key in keys) else None


def field(value: Any, name: str) -> Any:
    """One of the fields that `fields_of` names."""
    if _is_of_torch(value):
        return tuple(value)
    return value[name] if isinstance(value, dict) else getattr(value, name)


def with_records(export: Callable[[], Any]) -> Any:
    """What `export` returns; the types of objects that it meets and does not know are registered.

    Raises what `export` raises of anything else.
    """
    known: set[str] = set()
    while True:
        try:
            with _objects_without_a_hash():
                return export()
        except Exception as error:
            found = _UNKNOWN.search(str(error))
            cls = _class_of(found[1]) if found and found[1] not in known else None
            if found is None or cls is None or not _register(cls):
                raise
            known.add(found[1])


@contextlib.contextmanager
def _objects_without_a_hash() -> Iterator[None]:
    """Torch 2.11 looks up what a forward returns in a table of types, itself in place of its type,
    which fails for what has no hash, as most dataclasses: here it looks up the type, as 2.13 does.
    """
    asked = getattr(flattening, "is_opaque_type", None)
    if asked is None:  # of torch 2.13: it looks up the type
        yield
        return
    flattening.is_opaque_type = lambda value: asked(type(value))
    try:
        yield
    finally:
        flattening.is_opaque_type = asked


def unknown_record(error: Exception) -> str | None:
    """The name of a type of outputs that torch does not know, where that is the error."""
    found = _UNKNOWN.search(str(error))
    return found[1].rpartition(".")[2] if found else None


def _class_of(path: str) -> Any:
    """The class "package.module.Outer.Inner"; None where it is not to be found so."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        value: Any = sys.modules.get(".".join(parts[:count]))
        for name in parts[count:]:
            value = getattr(value, name, None)
        if isinstance(value, type):
            return value
    return None


def _register(cls: type) -> bool:
    """Makes the type known to torch, if it is a dataclass or a dict; whether it did."""
    if issubclass(cls, Mapping) and issubclass(cls, dict):
        pytree.register_pytree_node(
            cls,
            lambda value: (list(value.values()), list(value)),
            lambda values, keys: cls(**dict(zip(keys, values, strict=True))),
            serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        )
    elif dataclasses.is_dataclass(cls):
        torch.export.register_dataclass(cls)
    elif _is_plain_class(cls):
        pytree.register_pytree_node(
            cls,
            _flattened,
            lambda values, context: _of_attributes(cls, values, context),
            serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        )
    else:
        return False
    return True


Context = tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]


def _flattened(value: Any) -> tuple[list[Any], Context]:
    """What may hold tensors, and the names of all with the other values."""
    attributes = vars(value)
    parts = {name: each for name, each in attributes.items() if not isinstance(each, CONSTANTS)}
    others = tuple((name, each) for name, each in attributes.items() if name not in parts)
    return list(parts.values()), (tuple(attributes), others)


def _of_attributes(cls: type, values: Iterable[Any], context: Context) -> Any:
    names, others = context
    known = dict(others)
    parts = iter(values)
    made: Any = object.__new__(cls)
    made.__dict__.update((name, known[name] if name in known else next(parts)) for name in names)
    return made
