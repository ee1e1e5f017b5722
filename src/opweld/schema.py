"""JSON schemas (draft 2020-12) of frozen dataclasses as `to_plain` writes them.

Every field is written always, so that each is required; readers must let unknown fields be, as a
version may add some.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

DRAFT = "https://json-schema.org/draft/2020-12/schema"
FIGURE = "figure"
# JSON has no NaN and no infinity: they are written by their names.
_FIGURE = {
    "description": "A number; one that is not finite by its name.",
    "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}],
}
_SIMPLE = {bool: "boolean", int: "integer", str: "string"}

Schema = dict[str, Any]


def schema_of(cls: type, title: str, version: int, never_null: Sequence[str] = ()) -> Schema:
    """The schema of `cls`, whose field `schema_version` is `version`.

    Fields in `never_null` are never null here although the class allows it.
    """
    defs: dict[str, Schema] = {FIGURE: _FIGURE}
    schema = _object(cls, defs)
    properties = schema["properties"]
    properties["schema_version"] = {"const": version}
    hints = get_type_hints(cls)
    for name in never_null:
        properties[name] = _schema(_not_none(hints[name]), defs)
    return {"$schema": DRAFT, "title": title, **schema, "$defs": dict(sorted(defs.items()))}


def _object(cls: type, defs: dict[str, Schema]) -> Schema:
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    paragraph = (inspect.getdoc(cls) or "").partition("\n\n")[0]
    return {
        "description": " ".join(paragraph.split()),
        "type": "object",
        "properties": {name: _schema(hints[name], defs) for name in names},
        "required": names,
    }


def _schema(hint: Any, defs: dict[str, Schema]) -> Schema:
    """The schema of one annotation.

    Raises:
        TypeError: `to_plain` is not known to write such a value.
    """
    if dataclasses.is_dataclass(hint):
        return _reference(hint, defs)
    if hint is float:
        return {"$ref": f"#/$defs/{FIGURE}"}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(_not_none(hint), defs), {"type": "null"}]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple and arguments[1:] == (...,):
        return {"type": "array", "items": _schema(arguments[0], defs)}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema(arguments[1], defs)}
    raise TypeError(f"no schema for {hint}")


def _reference(cls: Any, defs: dict[str, Schema]) -> Schema:
    if cls.__name__ not in defs:
        defs[cls.__name__] = {}  # so that a class which holds itself ends here
        defs[cls.__name__] = _object(cls, defs)
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _not_none(hint: Any) -> Any:
    (only,) = (arg for arg in get_args(hint) if arg is not type(None))
    return only
