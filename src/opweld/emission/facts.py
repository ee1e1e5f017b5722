"""What an emitted file's kernels were made for below the forward's arguments, as a table.

Modules of one class that read the same have one row, weights of one shape another; what counts up
in their paths is written as a range, so that equal blocks of a list add nothing to the text, and
names that stand for each other between commas.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from ..ir.contract import CallableValue, Contract, ModuleFact, OpaqueValue
from .spelling.ops import dtype
from .support import fill

Key = TypeVar("Key", bound=Hashable)
WIDTH = 100
# Where what is held by the class stands.
INDENT = 8
# The length of a list of paths that is written as such.
MOST_LISTED = 72
# Modules that PyTorch itself makes (inside MultiheadAttention) and does not export.
NOT_IN_TORCH_NN = frozenset(["NonDynamicallyQuantizableLinear"])
# Types that stand in no module.
_UNNAMED = {
    "builtins:function": "type(lambda: None)",
    "builtins:code": "type((lambda: None).__code__)",
}
# Names whose paths can be written in one string, with ranges.
_PLAIN_PATH = re.compile(r"\w+(\.\w+)*")


def has_facts(contract: Contract) -> bool:
    """Whether there is anything to ask of modules and weights."""
    return bool(contract.weights or any(map(_is_asked, contract.modules)))


def facts_text(contract: Contract, original_module: str) -> str:
    """The call that makes the test of modules and weights, as it stands among what is held."""
    modules = [
        _row([kind, None, reads], paths)
        for (kind, reads), paths in _module_rows(contract, original_module)
    ]
    stored = (((w.type.dtype, w.type.shape, w.layout), w.path) for w in contract.weights)
    weights = [
        _row([dtype(kind), _value(shape, original_module), *_sparse(layout), None], paths)
        for (kind, shape, layout), paths in _grouped(stored)
    ]
    more = ["contiguous=True,"] if contract.row_major else []
    arguments = [*_listed(modules), *_listed(weights), *more]
    return "\n".join(["_facts(", *_in(arguments, INDENT + 4), f"{' ' * INDENT})"])


def object_expression(name: str, original_module: str) -> str:
    """Python text for "module:qualname", given the name under which capture knew the original."""
    module, qualname = name.split(":")
    if module == original_module:
        return f'_named(_original, "{qualname}")'
    if name in _UNNAMED:
        return _UNNAMED[name]
    if module.startswith("torch.nn.modules.") and qualname not in NOT_IN_TORCH_NN:
        return f"torch.nn.{qualname}"
    if module == "torch":
        return f"torch.{qualname.removeprefix('_VariableFunctionsClass.')}"
    return f'_named("{module}", "{qualname}")'


def paths_text(paths: Iterable[str]) -> list[str]:
    """The lines of a list of paths: with ranges where it is long, or half as long by them, and no
    name is unusual.
    """
    listed = list(paths)
    text = f"[{', '.join(map(_literal, listed))}]"
    if not all(_PLAIN_PATH.fullmatch(path) for path in listed):
        return [text]
    words = " ".join(_with_ranges([tuple(path.split(".")) for path in listed]))
    if len(text) <= min(MOST_LISTED, 2 * len(words)):
        return [text]
    lines = textwrap.wrap(words, WIDTH - 32, break_long_words=False, break_on_hyphens=False)
    first, *rest = [f'"{line} "' for line in lines]
    *before, last = [f"_paths({first}", *rest]
    return [*before, f'{last[:-2]}")']


# --- rows ---


def _module_rows(
    contract: Contract, original_module: str
) -> list[tuple[tuple[str, str], list[str]]]:
    """Class and what is read, with paths: of the module itself first."""

    def key(fact: ModuleFact) -> tuple[str, str]:
        kind = object_expression(fact.type_name, original_module) if fact.path else "None"
        return f"({kind},)" if fact.parametrized else kind, _reads(fact, original_module)

    facts = sorted(contract.modules, key=lambda fact: fact.path)
    return _grouped((key(fact), fact.path) for fact in facts if _is_asked(fact))


def _sparse(layout: str) -> list[str | None]:
    return [] if layout == "strided" else [f"torch.{layout}"]


def _is_asked(fact: ModuleFact) -> bool:
    """The type of the module itself is asked elsewhere."""
    return bool(fact.path or fact.attributes or fact.mode is not None)


def _grouped(pairs: Iterable[tuple[Key, str]]) -> list[tuple[Key, list[str]]]:
    found: dict[Key, list[str]] = {}
    for key, path in pairs:
        found.setdefault(key, []).append(path)
    return list(found.items())


def _reads(fact: ModuleFact, original_module: str) -> str:
    items = [f'"{name}": {_value(value, original_module)}' for name, value in fact.attributes]
    if fact.mode is not None:
        items.append(f'"training": {fact.mode}')
    return f"{{{', '.join(items)}}}"


def _value(value: Any, original_module: str) -> str:
    """Text of a value that the emitted `same` compares with; a type in a set is any value of it."""

    def text(each: Any) -> str:
        return _value(each, original_module)

    if isinstance(value, CallableValue):
        return object_expression(value.name, original_module)
    if isinstance(value, OpaqueValue):
        return f"{{{object_expression(value.type_name, original_module)}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {text(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(text, value))}]"
    if isinstance(value, tuple):
        if value == tuple(map(str, range(len(value)))) and len(value) > 2:
            return f"(*map(str, range({len(value)})),)"
        return f"({', '.join(map(text, value))}{',' if len(value) == 1 else ''})"
    return _literal(value)


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if abs(value) < float("inf") else f'float("{value}")'
    if isinstance(value, str):
        text = repr(value)
        return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text else text
    # A dtype, layout or memory format is spelled as it prints; a device is not.
    return text if (text := str(value)).startswith("torch.") else f'torch.device("{text}")'


# --- text ---


def _row(parts: list[str | None], paths: list[str]) -> list[str]:
    """The lines of a row, filled up; None among its parts stands for the paths."""
    texts = [paths_text(paths) if part is None else _items(part) for part in parts]
    items = [item for *some, last in texts for item in (*some, f"{last},")]
    items[0], items[-1] = f"({items[0]}", f"{items[-1][:-1]}),"
    first, *rest = fill(([item] for item in items), WIDTH - INDENT - 9)
    return [first, *_in(rest, 1)]


def _items(text: str) -> list[str]:
    """Those of a dictionary, of which none is broken: texts with blanks inside stay whole."""
    return re.split(r"(?<=,) (?=\"\w+\": )", text)


def _listed(rows: list[list[str]]) -> list[str]:
    return ["[", *(f"    {line}" for row in rows for line in row), "],"] if rows else ["[],"]


def _in(lines: list[str], spaces: int) -> list[str]:
    return [" " * spaces + line for line in lines]


# --- ranges ---


def _with_ranges(paths: list[tuple[str, ...]]) -> list[str]:
    """Paths that differ by a number alone are one, where the numbers follow each other, and those
    that differ by a name.
    """
    places = range(max(map(len, paths), default=0))
    for place in places:
        paths = _merged(paths, place)
    for place in reversed(places):
        paths = _joined(paths, place)
    return [".".join(path) for path in paths]


def _joined(paths: list[tuple[str, ...]], place: int) -> list[tuple[str, ...]]:
    """Those that differ at a place alone, with the names there between commas."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for path in paths:
        shared = (path[:place], path[place + 1 :]) if len(path) > place else (path, None)
        found.setdefault(shared, []).extend(path[place : place + 1])
    return [
        (*before, ",".join(names), *behind) if names else before
        for (before, behind), names in found.items()
    ]


def _merged(paths: list[tuple[str, ...]], place: int) -> list[tuple[str, ...]]:
    runs: dict[tuple[Any, ...], list[int]] = {}
    for path in paths:
        if len(path) > place and path[place] == str(_number(path[place])):
            runs.setdefault((path[:place], path[place + 1 :]), []).append(int(path[place]))
    found: dict[tuple[str, ...], None] = {}
    for path in paths:
        key = (path[:place], path[place + 1 :])
        numbers = runs.get(key, []) if len(path) > place else []
        if len(path) <= place or path[place] != str(_number(path[place])):
            found[path] = None
            continue
        for first, last in _consecutive(numbers):
            part = str(first) if first == last else f"{first}-{last}"
            found[(*path[:place], part, *path[place + 1 :])] = None
    return list(found)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _consecutive(numbers: list[int]) -> list[tuple[int, int]]:
    """(1, 2, 3, 7) as (1, 3), (7, 7)."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
