"""Whether ModelNew can be constructed and called as the original is: names, kinds, defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

NAME = "signature"
_BY_POSITION = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")
_BY_NAME = ("KEYWORD_ONLY", "POSITIONAL_OR_KEYWORD")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function: `kind` is inspect's name, `default` text, None without one."""

    name: str
    kind: str
    default: str | None = None


# What the constructor takes, and what the forward takes.
Signature = tuple["tuple[Parameter, ...] | None", "tuple[Parameter, ...] | None"]


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...] | None:
    """The parameters of a constructor, a bound method or a function; None where Python cannot
    tell them.

    A module without a constructor of its own takes none, although torch's reads `*args, **kwargs`.
    """
    if getattr(function, "__init__", None) is nn.Module.__init__:
        return ()
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    return tuple(Parameter(p.name, p.kind.name, _default_text(p.default)) for p in found)


def read_parameters(data: Any) -> tuple[Parameter, ...] | None:
    """The parameters from plain data.

    Raises:
        TypeError, KeyError: it is something else.
    """
    if data is None:
        return None
    return tuple(
        Parameter(
            str(p["name"]), str(p["kind"]), None if p["default"] is None else str(p["default"])
        )
        for p in data
    )


def incompatible(
    new: Sequence[Parameter] | None, original: Sequence[Parameter] | None
) -> str | None:
    """Why a call that the original takes is another one, or none, for the new; None where not.

    More parameters are compatible when they have defaults, and so is `*args, **kwargs`.
    """
    if new is None or original is None:
        return None
    return (
        _position_clause(new, original)
        or _name_clause(new, original)
        or _extra_clause(new, original)
    )


def signature_clause(new: Signature, original: Signature) -> str | None:
    """The first incompatibility of the constructor or the forward; None without one."""
    for name, left, right in zip(("__init__", "forward"), new, original, strict=True):
        if clause := incompatible(left, right):
            return f"{name} {clause}"
    return None


def _position_clause(new: Sequence[Parameter], original: Sequence[Parameter]) -> str | None:
    ours = [p for p in new if p.kind in _BY_POSITION]
    theirs = [p for p in original if p.kind in _BY_POSITION]
    takes_more = _has(new, "VAR_POSITIONAL")
    for position, parameter in enumerate(theirs):
        if position >= len(ours):
            if takes_more:
                break
            return f"lacks the parameter {parameter.name}"
        other = ours[position]
        if parameter.kind in _BY_NAME and other.name != parameter.name:
            return f"calls its parameter {other.name} where the original's is {parameter.name}"
        if clause := _default_clause(other, parameter):
            return clause
    if _has(original, "VAR_POSITIONAL") and not takes_more:
        return "takes no more arguments by position, and the original's does"
    return None


def _name_clause(new: Sequence[Parameter], original: Sequence[Parameter]) -> str | None:
    ours = {p.name: p for p in new if p.kind in _BY_NAME}
    takes_more = _has(new, "VAR_KEYWORD")
    for parameter in original:
        if parameter.kind not in _BY_NAME:
            continue
        other = ours.get(parameter.name)
        if other is None and not takes_more:
            return f"takes no argument named {parameter.name}"
        if other is not None and (clause := _default_clause(other, parameter)):
            return clause
    if _has(original, "VAR_KEYWORD") and not takes_more:
        return "takes no more arguments by name, and the original's does"
    return None


def _extra_clause(new: Sequence[Parameter], original: Sequence[Parameter]) -> str | None:
    known = {p.name for p in original}
    for parameter in new:
        named = parameter.kind in (*_BY_POSITION, *_BY_NAME)
        if named and parameter.name not in known and parameter.default is None:
            return f"asks for {parameter.name}, which the original's does not"
    return None


def _default_clause(new: Parameter, original: Parameter) -> str | None:
    if original.default is None or new.default == original.default:
        return None
    if new.default is None:
        return f"has no default for {new.name}, and the original's has {original.default}"
    return f"has the default {new.default} for {new.name} instead of {original.default}"


def _has(parameters: Sequence[Parameter], kind: str) -> bool:
    return any(p.kind == kind for p in parameters)


def _default_text(default: Any) -> str | None:
    """The default's text; of an object the class alone, for its text may hold an address."""
    if default is inspect.Parameter.empty:
        return None
    plain = (type(None), bool, int, float, complex, str, bytes, tuple, list, dict)
    return repr(default)[:200] if isinstance(default, plain) else f"a {type(default).__name__}"
