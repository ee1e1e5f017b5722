"""Attribute values in a form that two calls can be compared by."""

from __future__ import annotations

import functools
import importlib
import types
from typing import Any

import torch
from torch import nn

from opweld.errors import CaptureError
from opweld.ir.contract import CallableValue, OpaqueValue

_PLAIN = (bool, int, float, str, type(None))
_TORCH_PLAIN = (torch.dtype, torch.layout, torch.memory_format, torch.device)

Facts = list[tuple[str, Any]]


def facts_of_value(name: str, value: Any) -> Facts:
    """(name, value) pairs that pin down an attribute; parts of an object have dotted names.

    Raises CaptureError for a function that no name leads to and that holds values of its own.
    """
    if isinstance(value, functools.partial):
        return _partial_facts(name, value)
    if isinstance(value, types.FunctionType) and found_name(value) is None:
        return _nameless_facts(name, value)
    frozen = freeze(value)
    if not isinstance(frozen, OpaqueValue):
        return [(name, frozen)]
    inner = [(f"{name}.{key}", v) for key, v in sorted(_fields(value)) if isinstance(v, _PLAIN)]
    return [(name, frozen), *inner]


def _partial_facts(name: str, value: functools.partial[Any]) -> Facts:
    kind = (name, OpaqueValue(qualified_name(type(value))))
    held = [(f"{name}.args", freeze(value.args)), (f"{name}.keywords", freeze(value.keywords))]
    return [kind, *facts_of_value(f"{name}.func", value.func), *held]


def _nameless_facts(name: str, value: types.FunctionType) -> Facts:
    """A lambda or an inner function: each instance has its own, so its code is compared."""
    if value.__closure__ or value.__defaults__ or value.__kwdefaults__:
        raise CaptureError(f"self.{name} is a function that holds values of its own")
    code = value.__code__
    return [
        (name, OpaqueValue("builtins:function")),
        (f"{name}.__qualname__", value.__qualname__),
        (f"{name}.__code__.co_names", code.co_names),
        (f"{name}.__code__.co_consts", freeze(code.co_consts)),
    ]


def freeze(value: Any) -> Any:
    """A value to compare two calls by: plain, nested, or only the type of something opaque."""
    if isinstance(value, _PLAIN) or isinstance(value, _TORCH_PLAIN):
        return value
    if type(value) in (tuple, list):
        return type(value)(freeze(item) for item in value)
    if type(value) is dict and all(isinstance(key, _PLAIN) for key in value):
        return {key: freeze(item) for key, item in value.items()}
    found = found_name(value)
    return OpaqueValue(qualified_name(type(value))) if found is None else CallableValue(found)


def found_name(value: Any) -> str | None:
    """ "module:qualname" of a function or class that this name leads to."""
    if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return None
    names = (value.__qualname__, value.__name__)
    candidates = (f"{value.__module__}:{name}" for name in names)
    return next((name for name in candidates if _leads_to(name, value)), None)


def _leads_to(name: str, value: Any) -> bool:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        return False
    return found is value


def _fields(value: Any) -> Facts:
    held = getattr(value, "__dict__", None)
    if not isinstance(held, dict) or isinstance(value, nn.Module):
        return []
    return [(k, v) for k, v in held.items() if isinstance(k, str) and k.isidentifier()]


def qualified_name(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"
