"""Python expressions that reach a module's parameters and buffers."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

_INDEXED = (nn.Sequential, nn.ModuleList, nn.ParameterList)
_KEYED = (nn.ModuleDict, nn.ParameterDict)


def weight_access(module: nn.Module, path: str) -> str:
    """`self.layers[0].weight` for "layers.0.weight"."""
    owner: Any = module
    text = "self"
    for part in path.split("."):
        text += _step(text, owner, part)
        owner = getattr(owner, part) if part.isidentifier() else _child(owner, part)
    return text


def weight_at(module: nn.Module, path: str) -> Any:
    """What the emitted file finds at "layers.0.weight": a parameter, buffer or plain attribute of a
    submodule; None for what is elsewhere.
    """
    *owners, name = path.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, "_modules", {}).get(part)
    return getattr(owner, name, None)


def weight_name(path: str) -> str:
    """An identifier for texts: "layers.0.weight" is layers_0_weight."""
    return re.sub(r"\W", "_", path)


def _step(text: str, owner: Any, part: str) -> str:
    if isinstance(owner, _INDEXED) and part.isdigit():
        return f"[{part}]"
    if isinstance(owner, _KEYED):
        return f"[{part!r}]"
    if part.isidentifier():
        return f".{part}"
    return f"._modules[{part!r}]" if part in owner._modules else f"._parameters[{part!r}]"


def _child(owner: nn.Module, part: str) -> Any:
    for holder in (owner._modules, owner._parameters, owner._buffers):
        if part in holder:
            return holder[part]
    raise KeyError(part)
