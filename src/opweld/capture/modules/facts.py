"""What the forward read from its modules, and what must hold for the graph to stay true."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from opweld.errors import CaptureError, OriginalKept
from opweld.ir.contract import ModuleFact

from .attributes import facts_of_value, qualified_name

_LAYERS = os.path.join(os.path.dirname(torch.__file__), "nn", "modules") + os.sep
_PARAMETRIZING = os.path.join(os.path.dirname(torch.__file__), "nn", "utils", "parametriz")
_MODULE_FILE = os.path.join(_LAYERS, "module.py")
_TORCH = os.path.dirname(torch.__file__) + os.sep
# Names that nn.Module itself keeps; what they hold is covered by the other facts.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_OWN = frozenset(vars(nn.Module())) | {"_is_hf_initialized"}


@dataclass(slots=True)
class Reads:
    """Names read from each module, by the module's path, in the order of the first read.

    A module is known by its `__dict__`, which export's stand-ins for shared modules share with it;
    one that has several names has several paths. `assigned` are buffers that were given another
    tensor of their type, `writes` all other attributes that were assigned to.
    """

    paths: dict[int, list[str]]
    writes: list[str] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)
    names: dict[str, dict[str, None]] = field(default_factory=dict)

    def of(self, module: nn.Module) -> list[str]:
        return self.paths.get(id(object.__getattribute__(module, "__dict__")), [])

    def note(self, module: nn.Module, name: str) -> None:
        for path in self.of(module):
            self.names.setdefault(path, {}).setdefault(name)

    def note_write(self, module: nn.Module, name: str, value: Any) -> None:
        buffer = object.__getattribute__(module, "_buffers").get(name)
        if buffer is not None and buffer is value:
            return  # `self.steps += 1` changes the tensor, and assigns it to where it is
        paths = [f"{path}.{name}".lstrip(".") for path in self.of(module)]
        (self.assigned if _is_alike(buffer, value) else self.writes).extend(paths)

    def joined(self, other: Reads) -> Reads:
        """What was read in either of two captures of one module."""
        paths = dict.fromkeys((*self.names, *other.names))
        names = {p: {**self.names.get(p, {}), **other.names.get(p, {})} for p in paths}
        writes = [*self.writes, *other.writes]
        return Reads(self.paths, writes, [*self.assigned, *other.assigned], names)

    def mode_readers(self) -> frozenset[str]:
        return frozenset(path for path, names in self.names.items() if "training" in names)


@contextlib.contextmanager
def recording(module: nn.Module) -> Iterator[Reads]:
    """Notes every attribute that forwards read from, or assign in, `module` and its submodules.

    nn.Module gets a `__getattribute__` for the time being: the types stay what they are, which a
    subclass per module would change.
    """
    reads = Reads(_paths(module))

    def noting(self: nn.Module, name: str) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        if name == "forward" or _is_forward_code(caller):
            reads.note(self, name)
        return object.__getattribute__(self, name)

    def noting_write(self: nn.Module, name: str, value: Any) -> None:
        caller = sys._getframe(1).f_code.co_filename
        if _is_forward_code(caller) and not caller.startswith(_LAYERS):
            reads.note_write(self, name, value)
        assign(self, name, value)

    assign = nn.Module.__setattr__
    nn.Module.__getattribute__ = noting  # type: ignore[method-assign]
    nn.Module.__setattr__ = noting_write  # type: ignore[method-assign, assignment]
    try:
        yield reads
    finally:
        del nn.Module.__getattribute__
        nn.Module.__setattr__ = assign  # type: ignore[method-assign]


def _is_alike(buffer: Any, value: Any) -> bool:
    """Whether a buffer is given a tensor of its own type, of sizes that are known."""
    if not isinstance(buffer, torch.Tensor) or not isinstance(value, torch.Tensor):
        return False
    alike = value.dtype is buffer.dtype and value.dim() == buffer.dim()
    return alike and all(
        isinstance(size, int) and size == own
        for size, own in zip(value.shape, buffer.shape, strict=True)
    )


def _paths(module: nn.Module) -> dict[int, list[str]]:
    paths: dict[int, list[str]] = {}
    for path, child in module.named_modules(remove_duplicate=False):
        paths.setdefault(id(child.__dict__), []).append(path)
    return paths


def _is_forward_code(file: str) -> bool:
    """The user's code, or torch.nn's layers; torch's own machinery reads attributes too."""
    if file == _MODULE_FILE or file.startswith(("<", _OURS)):
        return False
    return file.startswith((_LAYERS, _PARAMETRIZING)) or not file.startswith(_TORCH)


def module_facts(
    module: nn.Module, reads: Reads, modes: Mapping[str, bool]
) -> tuple[ModuleFact, ...]:
    """One fact for each module that ran or was read, in the order of `named_modules`; of those that
    read their training flag, with the flag that `modes` has for them, by path.
    """
    readers = reads.mode_readers()
    return tuple(
        ModuleFact(
            path=path,
            type_name=qualified_name(_type_before(child)),
            attributes=_attributes(child, reads.names.get(path, {})),
            mode=modes.get(path) if path in readers else None,
            parametrized=parametrize.is_parametrized(child),
        )
        for path, child in module.named_modules(remove_duplicate=False)
        if path == "" or path in reads.names
    )


def _type_before(module: nn.Module) -> type:
    """The class of a module, before its weights were parametrized."""
    kind = type(module)
    return kind.__bases__[0] if parametrize.is_parametrized(module) else kind


def reads_alike(module: nn.Module, facts: Iterable[ModuleFact]) -> bool:
    """Whether another module of the same classes holds what `facts` say that forwards read."""
    for fact in facts:
        names = dict.fromkeys(name.partition(".")[0] for name, _ in fact.attributes)
        try:
            held = _attributes(module.get_submodule(fact.path), names)
        except (AttributeError, CaptureError):
            return False
        if repr(held) != repr(fact.attributes):  # 1 and True are different
            return False
    return True


def _attributes(module: nn.Module, names: dict[str, None]) -> tuple[tuple[str, Any], ...]:
    found = []
    for name in sorted(names):
        if name == "_modules":
            found.append((name, tuple(module._modules)))
        elif name not in _OWN and not name.startswith("__") and _is_plain_attribute(module, name):
            found.extend(facts_of_value(name, _raw(module, name)))
    return tuple(found)


def _is_plain_attribute(module: nn.Module, name: str) -> bool:
    if name in module.__dict__:
        return not isinstance(module.__dict__[name], torch.Tensor | nn.Module)
    value = _in_class(module, name)
    descriptor = hasattr(type(value), "__get__") or isinstance(value, property)
    return value is not _MISSING and not descriptor


_MISSING = object()


def _in_class(module: nn.Module, name: str) -> Any:
    return next((vars(c)[name] for c in type(module).__mro__ if name in vars(c)), _MISSING)


def _raw(module: nn.Module, name: str) -> Any:
    return module.__dict__.get(name, _in_class(module, name))


def refuse_attachments(module: nn.Module) -> None:
    """Hooks would be baked into the graph. Raises OriginalKept for them, and CaptureError for a
    weight that the first call is to make.
    """
    for path, child in module.named_modules():
        place = f"submodule {path!r}" if path else "the module"
        tensors = (*child._parameters.items(), *child._buffers.items())
        if lazy := next((name for name, each in tensors if nn.parameter.is_lazy(each)), None):
            raise CaptureError(
                f"{lazy} of {place} has no size before the first call",
                next_step="give its layer sizes, or call the model once when it is made",
            )
        if not path and parametrize.is_parametrized(child):
            raise OriginalKept(f"{place} has a parametrization")
        if any(vars(child)[hooks] for hooks in _HOOKS):
            raise OriginalKept(f"{place} has hooks")
        if "forward" in vars(child):
            raise OriginalKept(f"{place} has a forward of its own object, not of its class")
        for name, tensor in tensors:
            if tensor is not None and type(tensor) not in (torch.Tensor, nn.Parameter, nn.Buffer):
                raise OriginalKept(f"{name} of {place} is a {type(tensor).__name__}")
