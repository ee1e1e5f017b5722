"""The source of a class that no import can reach: one typed into a notebook or a script.

Its text is gathered together with what it refers to, so that the emitted file stands alone.
"""

from __future__ import annotations

import ast
import builtins
import dis
import importlib.machinery
import inspect
import linecache
import math
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from opweld.errors import CaptureError

GLOBAL_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
LITERALS = (int, float, complex, str, bytes, bool, type(None))


def embedded_source(classes: Iterable[type]) -> str:
    """Text that defines these classes, and the imports, constants and functions that they use.

    Raises:
        CaptureError: a source is not to be had, or it uses a value that has no source text.
    """
    gathered = _Gathered()
    for cls in classes:
        gathered.add(cls.__name__, cls)
    return gathered.text()


def is_importable(cls: Any) -> bool:
    """Whether another process with the same import path finds it by the name of its module."""
    top = cls.__module__.partition(".")[0]
    if top == "__main__" or "<locals>" in cls.__qualname__:
        return False
    finders = (importlib.machinery.BuiltinImporter, importlib.machinery.PathFinder)
    return any(finder.find_spec(top) is not None for finder in finders)


@dataclass(slots=True)
class _Gathered:
    """Definitions in the order in which Python needs them; names that were seen."""

    seen: set[str] = field(default_factory=set)
    imports: list[str] = field(default_factory=list)
    definitions: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "\n".join(sorted(self.imports)) + "\n\n\n" + "\n\n\n".join(self.definitions) + "\n"

    def add(self, name: str, value: Any) -> None:
        if name in self.seen:
            return
        self.seen.add(name)
        imported = _import_line(name, value)
        if imported:
            self.imports.append(imported)
        elif isinstance(value, (type, FunctionType)):
            self._define(name, value)
        else:
            self.definitions.append(f"{name} = {_literal(name, value)}")

    def _define(self, name: str, value: type | FunctionType) -> None:
        source = _source(name, value)
        scope = vars(sys.modules.get(value.__module__, builtins))
        for used in _names(source):
            if used in scope and used != name:
                self.add(used, scope[used])
        self.definitions.append(source)


def _source(name: str, value: type | FunctionType) -> str:
    if "<locals>" in value.__qualname__:
        raise CaptureError(
            f"{value.__qualname__} is defined inside a function, where no other file can reach it",
            next_step="define it at the top of a module or a cell",
        )
    try:
        found = _class_source(value) if isinstance(value, type) else inspect.getsource(value)
    except (OSError, TypeError) as error:
        raise CaptureError(
            f"the source of {name} is not to be had", next_step="define it in a file"
        ) from error
    return textwrap.dedent(found).rstrip()


def _class_source(cls: type) -> str:
    """By the place of one of its methods: a class of a notebook has no file that inspect finds."""
    methods = [each.__code__ for each in vars(cls).values() if isinstance(each, FunctionType)]
    for code in methods:
        lines = linecache.getlines(code.co_filename)
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                if first <= code.co_firstlineno <= (node.end_lineno or first):
                    return "".join(lines[first - 1 : node.end_lineno])
    return inspect.getsource(cls)


def _names(source: str) -> list[str]:
    """The global names that the text reads, in order, each once."""
    todo, found = [compile(source, "<embedded>", "exec")], list[str]()
    while todo:
        code = todo.pop(0)
        todo += [const for const in code.co_consts if isinstance(const, CodeType)]
        reads = (each for each in dis.get_instructions(code) if each.opname in GLOBAL_READS)
        found += [each.argval for each in reads]
    return list(dict.fromkeys(found))


def _import_line(name: str, value: Any) -> str | None:
    """How another file gets the value by import; None where it stands in no importable module."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" + _alias(value.__name__, name)
    qualname, home = getattr(value, "__qualname__", None), inspect.getmodule(value)
    if qualname is None or home is None or not is_importable(value):
        return None
    if getattr(home, qualname, None) is not value:
        return None
    return f"from {home.__name__} import {qualname}{_alias(qualname, name)}"


def _alias(own: str, name: str) -> str:
    return "" if own == name else f" as {name}"


def _literal(name: str, value: Any) -> str:
    if type(value).__name__ == "dtype" and type(value).__module__ == "torch":
        return f"__import__('torch').{str(value).removeprefix('torch.')}"
    if isinstance(value, (tuple, list)) and all(isinstance(each, LITERALS) for each in value):
        return repr(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, LITERALS):
        return repr(value)
    raise CaptureError(
        f"the model uses {name}, a value of type {type(value).__name__} without a source text",
        next_step="hand it to the constructor, or define the model in a file of its own",
    )
