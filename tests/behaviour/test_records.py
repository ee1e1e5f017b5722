"""Objects that a forward returns: dataclasses, dicts of types of their own, what is both."""

from __future__ import annotations

import types
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import load_file

from opweld.capture.records import fields_of
from opweld.driver import compile_file
from opweld.errors import CaptureError
from opweld.judge.tree import leaves, map_tensors, structure
from opweld.model_file import import_file
from opweld.options import Options

# As models of Hugging Face return: a dataclass that is a dict of the fields that are not None.
OUTPUTS = """
from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree


class ModelOutput(OrderedDict):
    def __init_subclass__(cls):
        if REGISTERED:
            _pytree.register_pytree_node(
                cls,
                lambda output: (list(output.values()), list(output)),
                lambda values, keys: cls(**dict(zip(keys, values))),
                serialized_type_name=f"{cls.__module__}.{cls.__name__}",
            )

    def __post_init__(self):
        for each in fields(self):
            if (value := getattr(self, each.name)) is not None:
                self[each.name] = value

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


@dataclass
class Encoded(ModelOutput):
    last: Any = None
    pooled: Any = None
    attentions: Any = None


@dataclass
class Decoded(ModelOutput):
    loss: Any = None
    logits: Any = None
    encoder: Any = None
    states: Any = None


@dataclass
class Pair:
    first: torch.Tensor
    second: Any = None


class Plain:
    def __init__(self, x):
        self.x = x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = torch.tanh(self.linear(x)) * 2.0
        return RETURNED


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""
# Each of them is a part of what one forward returns: a file is built once.
RETURNED = """(
    Pair(y, y + x),
    Pair(y * 7.0),
    Encoded(last=y * 8.0, pooled=y.mean(1)),
    Encoded(attentions=(y * 9.0, y * 3.0), last=x * y),
    Decoded(logits=y - 1.0, encoder=Encoded(last=y.exp()), states=[y - 2.0, {"k": x - y}]),
    OrderedDict(b=y / 3.0, a=y.relu()),
    torch.max(y * 5.0, 1),
    torch.aminmax(y * 6.0, dim=0),
)"""


def emitted(folder: Path, returned: str, registered: bool) -> ModuleType:
    path = folder / "returning.py"
    text = OUTPUTS.replace("RETURNED", returned).replace("REGISTERED", str(registered))
    path.write_text(text, "utf-8")
    compiled = compile_file(path, Options(target="cpu", check=False))
    assert any(row.kind != "library" for row in compiled.main_rows), compiled.main_rows
    return load_file(folder / "returning_new.py", compiled.text)


def parts(value: Any) -> Any:
    """Types by their names, and tensors."""
    if isinstance(value, torch.Tensor) or value is None:
        return value
    if isinstance(value, dict):
        items = {key: parts(item) for key, item in value.items()}
        assert all(getattr(value, key, item) is item for key, item in value.items())
        return type(value).__name__, list(items), list(items.values())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [parts(item) for item in value]
    return type(value).__name__, [parts(item) for item in vars(value).values()]


def require_equal(new: Any, old: Any) -> None:
    if isinstance(old, torch.Tensor):
        torch.testing.assert_close(new, old)
    elif isinstance(old, (list, tuple)):
        assert type(new) is type(old) and len(new) == len(old)
        for one, other in zip(new, old, strict=True):
            require_equal(one, other)
    else:
        assert new == old


@pytest.mark.parametrize("registered", [True, False], ids=["registered", "unknown"])
def test_what_is_returned_is_the_original_s(
    build_folder: Path, tmp_path: Path, registered: bool
) -> None:
    file = emitted(tmp_path, RETURNED, registered)
    new, x = file.ModelNew().eval(), torch.randn(6, 8)
    with torch.no_grad():
        assert new._opweld_fits(x)
        found, wanted = new(x), file.Model.forward(new, x)
    require_equal(parts(found), parts(wanted))
    assert all(type(one) is type(other) for one, other in zip(found, wanted, strict=True))


# Objects without a constructor of their fields: a cache, as those of Hugging Face's models.
HELD = """(
    Plain(y),
    Cache([Layer(y * 2.0, y + x), Layer(y - 1.0, y - 1.0)]),
)"""
CACHES = """
class Layer:
    counted = 0

    def __init__(self, keys, values):
        Layer.counted += 1
        self.keys, self.values = keys, values
        self.device, self.dtype = keys.device, keys.dtype
        self.is_ready = True


class Cache:
    def __init__(self, layers):
        self.layers, self.offloading, self.kind = layers, False, None

    def __len__(self):
        return len(self.layers)
"""


def test_an_object_that_is_made_in_the_forward_is_made_of_what_it_holds(
    build_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "returning.py"
    text = OUTPUTS.replace("RETURNED", HELD).replace("REGISTERED", "True")
    path.write_text(text.replace("\n\nclass Model(", f"\n{CACHES}\n\nclass Model("), "utf-8")
    compiled = compile_file(path, Options(target="cpu", check=False))
    forward = compiled.text[compiled.text.index("def forward(self, x):\n        _kernels") :]
    assert "torch.device(" not in forward[: forward.index("def _opweld_fits")]  # that of the call
    file = load_file(tmp_path / "returning_new.py", compiled.text)
    new, x = file.ModelNew().eval(), torch.randn(6, 8)
    layers = file._original.Layer
    with torch.no_grad():
        assert new._opweld_fits(x)
        before = layers.counted
        plain, cache = new(x)
        assert layers.counted == before  # no constructor runs: what it does was captured
        wanted, other = file.Model.forward(new, x)
    torch.testing.assert_close(plain.x, wanted.x)
    assert type(cache) is type(other) and list(vars(cache)) == list(vars(other))
    assert (len(cache), cache.offloading, cache.kind) == (2, False, None)
    for one, two in zip(cache.layers, other.layers, strict=True):
        assert type(one) is layers and list(vars(one)) == list(vars(two))
        assert (one.device, one.dtype, one.is_ready) == (two.device, two.dtype, True)
        torch.testing.assert_close((one.keys, one.values), (two.keys, two.values))
    twice = cache.layers[1]
    assert twice.keys is not twice.values


def test_the_judge_sees_what_objects_hold(tmp_path: Path) -> None:
    held = types.SimpleNamespace(x=torch.ones(2), y=[torch.zeros(3)], d=torch.device("cpu"), n=3)
    found = dict(leaves({"a": held}))
    assert list(found) == ["['a'].x", "['a'].y[0]", "['a'].d", "['a'].n"]
    assert found["['a'].d"] == "cpu" and structure(held)[0] == ("", "object")
    doubled = map_tensors(held, lambda t: t * 2)
    assert doubled is not held and torch.equal(doubled.x, torch.full((2,), 2.0))
    held.own = held  # which has no end
    assert len(dict(leaves(held))) < 100
    assert (
        structure(object()) == [("", "leaf")] and structure(torch.nn.Linear(1, 1))[0][1] == "leaf"
    )


def test_an_object_of_more_than_attributes_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "returning.py"
    slots = "class Plain:\n    __slots__ = ('x',)\n"
    text = OUTPUTS.replace("class Plain:\n", slots).replace("RETURNED", "Plain(y)")
    path.write_text(text.replace("REGISTERED", "True"))
    said = "the forward returns a Plain, whose parts torch does not know; return tensors, tuples"
    with pytest.raises(CaptureError, match=said):
        compile_file(path, Options(target="cpu", check=False))


class Doubled(dict):  # type: ignore[type-arg]
    def __init__(self, x: int) -> None:
        super().__init__(x=x, y=x)


def test_a_dict_that_its_type_does_not_make_again_has_no_fields() -> None:
    assert fields_of(Doubled(1)) is None
    assert fields_of({"a b": 1}) is None and fields_of({1: 2}) is None
    assert fields_of({"a": 1, "b": 2}) == ("a", "b")


def test_the_judge_tells_an_output_from_a_dict_of_the_same_items(tmp_path: Path) -> None:
    path = tmp_path / "outputs.py"
    path.write_text(OUTPUTS.replace("REGISTERED", "False"), "utf-8")
    output = import_file(path, "outputs_of_a_test").Encoded(last=torch.ones(2))
    assert structure(output) != structure({"last": torch.ones(2)})
    doubled = map_tensors(output, lambda t: t * 2)
    assert type(doubled) is type(output) and float(doubled.last.sum()) == 4.0
