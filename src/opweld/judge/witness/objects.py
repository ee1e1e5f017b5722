"""Python's functions and tables of names in the candidate's memory, beside those before the fork.

The referee and the candidate are forked from one process: what was there before has one address in
both. So the referee reads, in the memory of the candidate's process, the tables of modules and
classes and the functions in them, and compares; nothing that runs there is asked, or notices.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch

from opweld.judge.process.memory import ProcessMemory

_JUDGE = "opweld.judge"
# The parts of torch that models call, with the modules below them, and of Python what they rest on.
_OF_TORCH = (
    *("nn", "optim", "autograd", "linalg", "func", "fft", "special", "sparse", "cuda", "cpu"),
    *("amp", "backends", "testing", "library", "functional", "random", "storage", "overrides"),
    *("_tensor", "_ops", "_C", "utils.benchmark", "utils.checkpoint", "utils._python_dispatch"),
)
_OF_PYTHON = (
    *("builtins", "time", "sys", "gc", "os", "posix", "signal", "threading", "warnings", "random"),
    *("math", "struct", "pickle", "json", "socket", "select", "mmap", "ctypes", "types", "copy"),
    *("functools", "contextlib", "collections", "operator", "itertools", "inspect", "importlib"),
)
_BLOCK_BYTES = 2**16
# CPython's dict: references, type, count, version, keys, values of a split one.
_DICT, _KEYS = struct.Struct("<6q"), struct.Struct("<qBBBxIqq")
_GENERAL_KEYS = 0
_POINTER_BYTES = 8


class Unreadable(Exception):
    """Python's objects are laid out otherwise than is known here."""


class Pages:
    """Memory in blocks, each of which is read once."""

    def __init__(self, memory: ProcessMemory) -> None:
        self._memory = memory
        self._blocks: dict[int, bytes] = {}

    def read(self, address: int, num_bytes: int) -> bytes:
        number, start = divmod(address, _BLOCK_BYTES)
        if start + num_bytes > _BLOCK_BYTES:
            return self._memory.read_bytes(address, num_bytes)
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = self._block(number)
        if not block:
            return self._memory.read_bytes(address, num_bytes)
        return block[start : start + num_bytes]

    def _block(self, number: int) -> bytes:
        """Nothing where not all of it is mapped."""
        try:
            return self._memory.read_bytes(number * _BLOCK_BYTES, _BLOCK_BYTES)
        except OSError:
            return b""


@dataclass(frozen=True, slots=True)
class Table:
    """The entries of a dict as they lie in memory: so many words each, the last two of them the
    addresses of key and value.
    """

    width: int
    data: bytes

    def entries(self) -> dict[int, int]:
        """The addresses of the values by those of the keys."""
        words = struct.unpack(f"<{len(self.data) // _POINTER_BYTES}q", self.data)
        keys, values = words[self.width - 2 :: self.width], words[self.width - 1 :: self.width]
        return {key: value for key, value in zip(keys, values, strict=True) if value}


@dataclass(frozen=True, slots=True)
class Fixed:
    """An object that stays the one that it is, of its class, and that holds others of which the
    same is true, by the names of its slots.
    """

    name: str
    value: Any
    slots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A module or class, the address of its table, and the bytes of names and values in it."""

    name: str
    owner: Any
    address: int
    table: Table

    @property
    def is_of_judge(self) -> bool:
        return self.name.startswith(_JUDGE)


class Recorded:
    """What stands in the tables of this process, to be made before it forks.

    Raises:
        Unreadable: this Python lays its objects out otherwise.
        OSError: the system does not let the memory be read.
    """

    def __init__(self, fixed: Sequence[Fixed] = ()) -> None:
        memory = ProcessMemory(os.getpid())
        pages = Pages(memory)
        _require_known_layout(pages)
        self._offsets = _offsets(pages)
        self._places = [
            Place(name, owner, address, _table(pages, address))
            for name, owner in _places()
            for address in [_table_address(owner)]
        ]
        self._fixed = [(each.name, *_words_of(pages, each)) for each in fixed]
        memory.close()
        values = [value for place in self._places for value in vars(place.owner).values()]
        self._callable = {id(value) for value in values if _is_callable(value)}
        self._functions = {id(f): f for value in values for f in _functions_of(value)}
        self._pointers = {address: _pointers(f) for address, f in self._functions.items()}
        self._builtins = {id(name): name for name in vars(builtins)}

    def differences(self, memory: ProcessMemory) -> list[str]:
        """Full names of what is another object in that process, or gone, or rewritten.

        Raises:
            OSError: its memory cannot be read.
        """
        pages = Pages(memory)
        found = [name for place in self._places for name in self._changed(pages, place)]
        for name, address, expected in self._fixed:
            words = _words(pages, address, 1 + max(expected))
            if any(words[at] != word for at, word in expected.items()):
                found.append(name)
        return sorted({*found, *self._rewritten(pages)})

    def _changed(self, pages: Pages, place: Place) -> Iterator[str]:
        found = _table(pages, place.address)
        if found == place.table:
            return
        before, now = place.table.entries(), found.entries()
        names = {id(name): name for name in vars(place.owner)}
        for key, value in before.items():
            counts = value in self._callable or place.is_of_judge
            if now.get(key) != value and counts and not _is_dunder_of_module(place, names.get(key)):
                yield f"{place.name}.{names.get(key, 'what it had')}"
        for key in now.keys() - before.keys():
            if isinstance(place.owner, ModuleType):
                if key in self._builtins:
                    yield f"{place.name}.{self._builtins[key]}"
            elif _type_of(pages, now[key]) == id(FunctionType):
                yield f"a method of {place.name}"

    def _rewritten(self, pages: Pages) -> Iterator[str]:
        """Functions whose code, defaults or closure are others."""
        for address, expected in self._pointers.items():
            if _read_pointers(pages, address, self._offsets) != expected:
                function = self._functions[address]
                yield f"{function.__module__}.{function.__qualname__}"


def _places() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or not _is_watched(name):
            continue
        yield name, module
        for owner in list(vars(module).values()):
            if isinstance(owner, type) and owner.__module__ == name:
                yield f"{name}.{owner.__qualname__}", owner
    yield "torch.Tensor", torch.Tensor


def _is_watched(name: str) -> bool:
    if f"{name}.".startswith(f"{_JUDGE}."):
        return True
    first, _, rest = name.partition(".")
    if first != "torch":
        return first in _OF_PYTHON
    return not rest or any(f"{rest}.".startswith(f"{part}.") for part in _OF_TORCH)


def _is_dunder_of_module(place: Place, name: str | None) -> bool:
    """Python itself sets `__warningregistry__` and its like."""
    return isinstance(place.owner, ModuleType) and bool(name) and str(name).startswith("__")


def _is_callable(value: Any) -> bool:
    return callable(value) or isinstance(value, (property, classmethod, staticmethod))


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """The functions that a value is, wraps, or has in its closure."""
    if isinstance(value, (classmethod, staticmethod)):
        yield from _functions_of(value.__func__)
    elif isinstance(value, property):
        for part in (value.fget, value.fset):
            yield from _functions_of(part)
    elif isinstance(value, FunctionType):
        yield value
        inner = getattr(value, "__wrapped__", None)
        if isinstance(inner, FunctionType) and inner is not value:
            yield inner


def _pointers(f: FunctionType) -> tuple[int, ...]:
    """The addresses of what a function consists of; 0 for what it does not have."""
    parts = (f.__code__, f.__globals__, f.__defaults__, f.__closure__)
    return tuple(0 if part is None else id(part) for part in parts)


def _offsets(pages: Pages) -> tuple[int, ...]:
    """Where in a function these stand, found in one."""

    def make(first: int = 1) -> Any:
        return pages, first

    probe: Any = make
    words = struct.unpack("<16q", pages.read(id(probe), 16 * _POINTER_BYTES))
    wanted = _pointers(probe)
    if any(words.count(pointer) != 1 for pointer in wanted):
        raise Unreadable
    return tuple(words.index(pointer) * _POINTER_BYTES for pointer in wanted)


def _read_pointers(pages: Pages, address: int, offsets: tuple[int, ...]) -> tuple[int, ...]:
    data = pages.read(address, max(offsets) + _POINTER_BYTES)
    return tuple(struct.unpack_from("<q", data, offset)[0] for offset in offsets)


def _words(pages: Pages, address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}q", pages.read(address, count * _POINTER_BYTES))


def _words_of(pages: Pages, fixed: Fixed) -> tuple[int, dict[int, int]]:
    """The address of an object, and its words that stay: its class, and those of its slots."""
    cls = type(fixed.value)
    words = _words(pages, id(fixed.value), cls.__basicsize__ // _POINTER_BYTES)
    found = {1: id(cls)}
    for slot in fixed.slots:
        pointer = id(getattr(fixed.value, slot))
        if words.count(pointer) != 1:
            raise Unreadable
        found[words.index(pointer)] = pointer
    return id(fixed.value), found


def _table_address(owner: Any) -> int:
    """The address of the dict behind a module's or class's `vars`."""
    found = vars(owner)
    return id(found) if isinstance(found, dict) else _behind(found)


def _behind(proxy: Any) -> int:
    """What a read-only view shows: references, type, and then the dict's address."""
    return ctypes.c_int64.from_address(id(proxy) + 2 * _POINTER_BYTES).value


def _table(pages: Pages, address: int) -> Table:
    """What a dict holds; nothing for one that shares its keys with others."""
    *_, keys, split = _DICT.unpack(pages.read(address, _DICT.size))
    if split:
        return Table(2, b"")
    _, _, log2_index_bytes, kind, _, _, num_entries = _KEYS.unpack(pages.read(keys, _KEYS.size))
    width = 3 if kind == _GENERAL_KEYS else 2
    if not 0 <= num_entries < 2**24 or log2_index_bytes > 32:
        raise OSError("no dict lies there")
    start = keys + _KEYS.size + (1 << log2_index_bytes)
    size = num_entries * width * _POINTER_BYTES
    return Table(width, pages.read(start, size) if size else b"")


def _type_of(pages: Pages, address: int) -> int:
    return int(struct.unpack("<q", pages.read(address + _POINTER_BYTES, _POINTER_BYTES))[0])


def _require_known_layout(pages: Pages) -> None:
    """Tables that are known must be read as what they are."""
    for owner in (builtins, torch, FunctionType, Place):
        expected = {id(key): id(value) for key, value in vars(owner).items()}
        if _table(pages, _table_address(owner)).entries() != expected:
            raise Unreadable


def _use_optimizers() -> None:
    """Torch wraps the step of an optimizer's class when the first of that class is made."""
    parameter = torch.zeros(1, 1, requires_grad=True)
    for cls in vars(torch.optim).values():
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer):
            with contextlib.suppress(Exception):  # one that cannot be made wraps nothing
                cls([parameter])


def recorded(fixed: Sequence[Fixed]) -> Recorded | None:
    """None where memory cannot be read so."""
    _use_optimizers()
    try:
        return Recorded(fixed)
    except (Unreadable, OSError, struct.error):
        return None
