"""The model files of the zoo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.zoo import calls, hub


@dataclass(frozen=True)
class Entry:
    """A model by its name and field, and the text of its file."""

    name: str
    field: str
    text: str


_OWN = """from benchmarks.zoo import calls


class Model(calls.MODELS[{name!r}][0]):
    def __init__(self):
        super().__init__({width})


def get_inputs():
    return list(calls.MODELS[{name!r}][2]({batch}, {width}))


def get_init_inputs():
    return []
"""
_HUB = """import torch
import transformers


class Model(transformers.{kind}):
    def __init__(self):
        super().__init__(transformers.{config}(**{given!r}))


def get_inputs():
    return [{call}]


def get_init_inputs():
    return []
"""


def entries(width: int, batch: int, length: int) -> Mapping[str, Entry]:
    """All models at a width, with calls of `batch` rows of `length` tokens."""
    found = {}
    for name, (kind, field, _) in calls.MODELS.items():
        text = _OWN.format(kind=kind.__name__, width=width, batch=batch, name=name)
        found[name] = Entry(name, field, text)
    for name, (field, kind, config, given, call) in hub.rows(width).items():
        arguments = call.format(batch=batch, length=length)
        text = _HUB.format(kind=kind, config=config, given=given, call=arguments)
        found[name] = Entry(name, field, text)
    return found
