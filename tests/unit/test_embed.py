"""Gathering the source of a class that stands in no importable module."""

from __future__ import annotations

import linecache
import math
import sys
import types
from collections.abc import Iterator

import pytest
import torch

from opweld.errors import CaptureError
from opweld.interface.embed import embedded_source, is_importable

SCRIPT = '''
import math
import torch
import torch.nn.functional as F
from torch import nn
from math import sqrt as root
SCALE, DTYPE, SIZES = 2.5, torch.float32, (1, 2)
INF = float('inf')
x = torch.ones(3)
unused = object()
def half(value):
    return value / root(4.0)
class Block(nn.Module):
    def forward(self, x):
        return F.relu(half(x)) * SCALE
class Net(nn.Module):
    """Its own local x is not the script's."""
    def __init__(self):
        super().__init__()
        self.block = Block()
    def forward(self, x):
        return self.block(x).clamp(-INF, INF).to(DTYPE) + math.pi + SIZES[1]
class Holder(nn.Module):
    def forward(self, y):
        return y + x
def make():
    class Inner(nn.Module): ...
    return Inner
'''


@pytest.fixture
def script() -> Iterator[types.ModuleType]:
    """A module like a notebook: no file, its text known to linecache only, as IPython has it."""
    module = types.ModuleType("a_notebook")
    sys.modules["a_notebook"] = module
    linecache.cache["<cell 1>"] = (len(SCRIPT), None, SCRIPT.splitlines(True), "<cell 1>")
    exec(compile(SCRIPT, "<cell 1>", "exec"), module.__dict__)
    yield module
    del sys.modules["a_notebook"], linecache.cache["<cell 1>"]


def test_the_source_stands_alone(script: types.ModuleType) -> None:
    namespace: dict = {}
    exec(embedded_source([script.Net]), namespace)
    value = torch.tensor([-1.0, 4.0])
    assert torch.equal(namespace["Net"]()(value), script.Net()(value))
    assert torch.allclose(namespace["Net"]()(value)[1], torch.tensor(5.0 + math.pi + 2))


def test_only_what_is_used_is_there(script: types.ModuleType) -> None:
    source = embedded_source([script.Net])
    for used in ("import math", "import torch.nn.functional as F", "from math import sqrt as root"):
        assert used in source
    assert "unused" not in source and "Holder" not in source


def test_a_value_without_a_source_is_refused(script: types.ModuleType) -> None:
    with pytest.raises(CaptureError) as caught:
        embedded_source([script.Holder])
    assert str(caught.value) == (
        "the model uses x, a value of type Tensor without a source text;"
        " hand it to the constructor, or define the model in a file of its own"
    )


def test_a_class_inside_a_function_is_refused(script: types.ModuleType) -> None:
    with pytest.raises(CaptureError, match="Inner is defined inside a function"):
        embedded_source([script.make()])


def test_importable(script: types.ModuleType) -> None:
    assert is_importable(torch.nn.Linear)
    assert not is_importable(script.Net)
    assert not is_importable(script.make())
