"""Captures of a model's submodules, where no graph holds the model as a whole.

One run of the original shows with what each of them is called. Modules of one class that are
called alike and have weights of the same shapes are of one kind: a capture of one of them is for
all.
"""

from __future__ import annotations

import copy
import functools
import importlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from opweld.errors import CaptureError
from opweld.ir.contract import Capture, Needs, Submodule, Variant

from .arguments import bind
from .modules.attributes import qualified_name
from .modules.facts import reads_alike, refuse_attachments
from .modules.preserve import OWN, unchanged
from .variants import capture_variants

# After which no further submodule is captured.
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What captures are made for: `original` is the name of the module that the model's class is
    in, `fuses` tells whether a variant gets kernels.
    """

    name: str
    original: str
    needs: Needs
    given_back: frozenset[str]
    fuses: Callable[[Variant], bool]


def capture_submodules(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    asked: Asked,
    refusal: CaptureError,
) -> Capture | None:
    """The largest submodules that have graphs, and kernels; None where there are none. `refusal` is
    why the whole has no graph. The module is left as it was.
    """
    if any(map(nn.parameter.is_lazy, (*module.parameters(), *module.buffers()))):
        return None
    try:
        calls = recorded_calls(module, args, kwargs)
    except CaptureError:
        return None
    search = _Search(calls, asked)
    search.below(("",))
    if not search.variants:
        return None
    left = (("", str(refusal)), *search.left)
    return Capture(asked.name, search.with_uncalled(module), tuple(search.kept), left)


@dataclass(slots=True)
class _Search:
    """Goes from the outermost submodules inwards, where one has no graph."""

    calls: dict[str, Called]
    asked: Asked
    variants: list[Variant] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    until: float = field(default_factory=lambda: time.monotonic() + _SECONDS)

    def below(self, paths: tuple[str, ...]) -> None:
        waiting = list(kinds_below(self.calls, paths))
        while waiting:
            kind = waiting.pop(0)
            found = self._captured(kind)
            if isinstance(found, str):
                self.left.append((", ".join(kind.paths), found))
                continue
            if isinstance(found, CaptureError):
                self.left.append((", ".join(kind.paths), str(found)))
                self.below(kind.paths)
                continue
            if others := self._taken(kind, found):
                waiting.insert(0, _kind_of([self.calls[path] for path in others]))

    def _captured(self, kind: Kind) -> Capture | CaptureError | str:
        """The capture of a kind, or why it has none: an error where those below may have one."""
        wanted = self.asked
        if time.monotonic() > self.until:
            return f"captures of submodules took {_SECONDS:.0f} s"
        if not _is_found(kind.module, wanted.original):
            return CaptureError(f"its class, {kind.type_name}, is not found by its name")
        try:
            refuse_attachments(kind.module)
            found = capture_variants(
                kind.module,
                bind(kind.module, kind.args, kind.kwargs),
                name=wanted.name,
                batch=True,
                needs=wanted.needs,
                given_back=wanted.given_back,
            )
        except CaptureError as refusal:
            return refusal
        own = self._submodule(kind)  # names of kernels end with its label
        named = (replace(each, submodule=own) for each in found.variants)
        return found if any(map(wanted.fuses, named)) else "nothing of it is fused"

    def _taken(self, kind: Kind, found: Capture) -> list[str]:
        """The paths of those that hold other values than the one that was captured."""
        facts = found.variants[0].contract.modules
        alike = [path for path in kind.paths if reads_alike(self.calls[path].module, facts)]
        own = self._submodule(replace(kind, paths=tuple(alike)))
        variants = [replace(each, submodule=own) for each in found.variants]
        self.names.add(own.name)
        self.variants += [replace(v, name=_joined(own.name, v.state)) for v in variants]
        self.kept += [(_joined(own.name, state), reason) for state, reason in found.kept]
        return [path for path in kind.paths if path not in alike]

    def with_uncalled(self, module: nn.Module) -> tuple[Variant, ...]:
        """The variants, for modules too that the run did not call, but are made as those it did."""
        owns = {v.submodule: v.contract.modules for v in reversed(self.variants) if v.submodule}
        taken = [path for own in owns for path in own.paths]
        made = {own: _made(self.calls[own.paths[0]].module) for own in owns}
        more: dict[Submodule, tuple[str, ...]] = dict.fromkeys(owns, ())
        for path, child in module.named_modules():
            if not path or path in self.calls or any(path.startswith(f"{at}.") for at in taken):
                continue
            like = _made(child)
            for kind, facts in owns.items():
                if made[kind] == like and reads_alike(child, facts):
                    more[kind] += (path,)
                    break
        return tuple(
            replace(each, submodule=replace(own, paths=own.paths + more[own]))
            for each in self.variants
            if (own := each.submodule) is not None
        )

    def _submodule(self, kind: Kind) -> Submodule:
        wish, number = f"{kind.type_name.rpartition(':')[2].rpartition('.')[2].strip('_')}", 1
        name = f"{wish}New"
        while name in self.names | {"ModelNew"}:
            number += 1
            name = f"{wish}New_{number}"
        label = wish.lower() if number == 1 else f"{wish.lower()}_{number}"
        return Submodule(name, label, kind.type_name, kind.paths)


def _joined(name: str, state: str) -> str:
    return f"{name}, {state}" if state else name


def _is_found(module: nn.Module, original: str) -> bool:
    """Whether the name of the module's class leads to it."""
    holder, qualname = qualified_name(type(module)).split(":")
    if holder == "__main__" != original:
        return False
    try:
        found = functools.reduce(getattr, qualname.split("."), importlib.import_module(holder))
    except (ImportError, AttributeError):
        return False
    own: Any = type(module)
    return found is own


@dataclass(frozen=True, slots=True)
class Kind:
    """Submodules that one capture is for: their paths in the model, the first of them, and a call
    of one: that with the most rows, as sizes of 0 and 1 tell little.
    """

    paths: tuple[str, ...]
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def type_name(self) -> str:
        """Its class as "module:qualname"."""
        return qualified_name(type(self.module))


@dataclass(frozen=True, slots=True)
class Called:
    """One submodule's calls: those of the run that have the form of the first."""

    path: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def rows(self) -> int:
        """The leading size of the first tensor that has one."""
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        sizes = (leaf.shape[0] for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim())
        return next(sizes, 0)


def kinds_below(calls: dict[str, Called], paths: Iterable[str] = ("",)) -> Iterator[Kind]:
    """The kinds of the submodules called that are nearest below these paths, in their order."""
    found: dict[str, list[Called]] = {}
    for called in (called for path in paths for called in _nearest(calls, path)):
        found.setdefault(_form(called), []).append(called)
    yield from map(_kind_of, found.values())


def _kind_of(alike: list[Called]) -> Kind:
    """Those of one form, by the one whose call has the most rows, without hooks if may be."""
    most = max(alike, key=lambda each: (not each.module._forward_hooks, each.rows))
    return Kind(tuple(each.path for each in alike), most.module, most.args, most.kwargs)


def recorded_calls(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Called]:
    """Each submodule that a run of a copy of `module` calls, by its path, in the model's order.

    Raises CaptureError where the model cannot be copied or does not run.
    """
    try:
        twin = copy.deepcopy(module)
    except Exception as error:  # what the user's attributes raise
        raise CaptureError(f"the model cannot be copied: {_first_line(error)}") from error
    seen: dict[str, Called] = {}
    for path, child in twin.named_modules():
        if path:
            child.register_forward_pre_hook(_noting(seen, path), with_kwargs=True)
    given, named = pytree.tree_map_only(torch.Tensor, _copy, (args, kwargs))
    with unchanged(twin, OWN):
        try:
            twin(*given, **named)
        except Exception as error:  # the user's code
            raise CaptureError(f"the forward raises {_first_line(error)}") from error
    order = {path: child for path, child in module.named_modules() if path in seen}
    return {
        path: Called(path, child, seen[path].args, seen[path].kwargs)
        for path, child in order.items()
    }


def _noting(seen: dict[str, Called], path: str) -> Any:
    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given, named = pytree.tree_map_only(torch.Tensor, _copy, (args, kwargs))
        called, known = Called(path, module, given, named), seen.get(path)
        if known is None or (_form(called) == _form(known) and called.rows > known.rows):
            seen[path] = called

    return note


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}{f': {lines[0]}' if lines else ''}"


def _nearest(calls: dict[str, Called], path: str) -> Iterator[Called]:
    """Those below `path` that are below no other one there."""
    above: list[str] = []
    for name, called in calls.items():
        inside = name.startswith(f"{path}.") if path else True
        if inside and not any(name.startswith(f"{each}.") for each in above):
            above.append(name)
            yield called


def _form(called: Called) -> str:
    """All that tells one kind from another: sizes of the first axis do not, for they are dynamic
    where a capture allows it, and guards ask what is not seen here.
    """
    leaves, spec = pytree.tree_flatten((called.args, called.kwargs))
    return repr((_made(called.module), spec, list(map(_leaf_form, leaves))))


def _made(module: nn.Module) -> str:
    """How a module is made, and its modes."""
    tensors = (*module.named_parameters(), *module.named_buffers())
    weights = [(name, tuple(t.shape), t.dtype) for name, t in tensors]
    below = [(qualified_name(type(child)), child.training) for child in module.modules()]
    return repr((below, repr(module), weights))


def _leaf_form(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape[1:]), leaf.dim(), leaf.dtype
    return type(leaf).__name__, repr(leaf) if isinstance(leaf, int | float | str) else ""
