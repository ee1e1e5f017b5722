"""The forward's arguments, its signature, and the expressions that reach each leaf of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from opweld.errors import CaptureError

_PLAIN = (bool, int, float, str, type(None))
_LITERALS = (torch.dtype, torch.layout, torch.memory_format)


@dataclass(frozen=True, slots=True)
class ArgumentLeaf:
    """One leaf of the arguments: a tensor, or a plain value that export bakes in."""

    access: str
    value: Any


@dataclass(frozen=True, slots=True)
class Arguments:
    """The call as torch.export sees it; `shape_facts` are (expression, value) of the containers."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    signature: str
    bound: dict[str, Any]
    leaves: tuple[ArgumentLeaf, ...]
    container_facts: tuple[tuple[str, Any], ...]

    @property
    def tensors(self) -> tuple[ArgumentLeaf, ...]:
        return tuple(leaf for leaf in self.leaves if isinstance(leaf.value, torch.Tensor))


def bind(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Matches a call with the forward's signature. Raises CaptureError where they do not fit."""
    signature = inspect.signature(module.forward)
    args, kwargs = _distinct(module, args, kwargs)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CaptureError(f"the inputs do not fit the forward's parameters: {error}") from None
    leaves: list[ArgumentLeaf] = []
    facts: list[tuple[str, Any]] = []
    for name, parameter in signature.parameters.items():
        if name not in bound.arguments and parameter.kind is parameter.VAR_POSITIONAL:
            facts.append((f"len({name})", 0))
        elif name not in bound.arguments and parameter.kind is parameter.VAR_KEYWORD:
            facts.append((f"tuple({name})", ()))
        elif name not in bound.arguments:
            facts.append((name, _default(name, parameter.default)))
        else:
            variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            found = list(_walk(name, bound.arguments[name], facts, variadic))
            leaves.extend(found)
    # By name where they are given so: a wrapper around the forward may look for them there.
    named = {name: kwargs[name] for name in signature.parameters if name in kwargs}
    return Arguments(
        args,
        {**named, **kwargs},
        _signature_text(signature),
        dict(bound.arguments),
        tuple(leaves),
        tuple(facts),
    )


def _distinct(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """A tensor given twice, or held by the module too, is copied: export takes both for one."""
    seen = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}

    def fresh(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and id(leaf) in seen:
            leaf = leaf.detach().clone().requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.Tensor):
            seen.add(id(leaf))
        return leaf

    return pytree.tree_map(fresh, args), pytree.tree_map(fresh, kwargs)


def _default(name: str, value: Any) -> Any:
    _default_text(name, value)
    return value


def _walk(
    access: str, value: Any, facts: list[tuple[str, Any]], variadic: bool = False
) -> Iterator[ArgumentLeaf]:
    if isinstance(value, torch.Tensor):
        yield _tensor(access, value)
    elif isinstance(value, _PLAIN):
        yield ArgumentLeaf(access, value)
    elif type(value) in (tuple, list):
        if not variadic:
            facts.append((f"type({access}).__name__", type(value).__name__))
        facts.append((f"len({access})", len(value)))
        for index, item in enumerate(value):
            yield from _walk(f"{access}[{index}]", item, facts)
    elif type(value) is dict and all(isinstance(key, str | int) for key in value):
        if not variadic:
            facts.append((f"type({access}).__name__", "dict"))
        facts.append((f"tuple({access})", tuple(value)))
        for key, item in value.items():
            yield from _walk(f"{access}[{key!r}]", item, facts)
    else:
        raise CaptureError(
            f"input {access} is a {type(value).__name__}",
            next_step="use tensors, numbers, strings, and tuples, lists or dicts of them",
        )


def _tensor(access: str, value: torch.Tensor) -> ArgumentLeaf:
    if type(value) not in (torch.Tensor, nn.Parameter):
        raise CaptureError(f"input {access} is a tensor subclass, {type(value).__name__}")
    if value.layout is not torch.strided:
        raise CaptureError(f"input {access} is a {value.layout} tensor")
    return ArgumentLeaf(access, value)


def _signature_text(signature: inspect.Signature) -> str:
    """`self, x, scale=1.0, *, mask=None`: the forward's parameters without annotations."""
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    kinds = {p.kind for p in signature.parameters.values()}
    if inspect.Parameter.POSITIONAL_ONLY not in kinds:
        parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for parameter in signature.parameters.values():
        default = parameter.default
        if default is not parameter.empty:
            default = _Text(_default_text(parameter.name, default))
        parameters.append(parameter.replace(annotation=parameter.empty, default=default))
    return str(inspect.Signature(parameters))[1:-1]


def _default_text(name: str, value: Any) -> str:
    if isinstance(value, _LITERALS):
        return str(value)
    if isinstance(value, float) and repr(value) in ("inf", "-inf", "nan"):
        return f"float({repr(value)!r})"
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple) and all(isinstance(item, _PLAIN) for item in value):
        return repr(value)
    raise CaptureError(
        f"the default of parameter {name!r} of the forward cannot be written as text"
    )


@dataclass(frozen=True, slots=True)
class _Text:
    text: str

    def __repr__(self) -> str:
        return self.text
