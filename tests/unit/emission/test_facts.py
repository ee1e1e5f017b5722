"""What the kernels of a file were made for: the table of it, and what the emitted test notices."""

from __future__ import annotations

import copy
import gc
import inspect
import random
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from opweld.emission import piece
from opweld.emission.facts import facts_text, has_facts, paths_text
from opweld.ir.contract import Contract, ModuleFact, OpaqueValue, WeightFact
from opweld.ir.types import DType, TensorType

NAMES: dict[str, Any] = {"torch": torch, "_original": sys.modules[__name__]}
for text in ("paths", "facts"):
    exec(piece(text), NAMES)
NAMES["_named"] = lambda module, name: getattr(module, name)
DEVICES = (torch.device("cpu"),)


def plain(x: Any, dtype: torch.dtype, devices: Any, shape: Any = None) -> bool:
    kinds = (torch.Tensor, nn.Parameter)
    return type(x) in kinds and x.dtype is dtype and x.device in devices and x.shape == shape


class Kind:
    """What cannot be compared."""


class Block(nn.Module):
    scale = 2.0  # of the class

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.sizes = [1, 2]
        self.kind = Kind()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.factor = 3
        self._opweld = SimpleNamespace(plain=plain)


def tensor(*shape: int) -> TensorType:
    return TensorType(DType.F32, shape)


def fact(
    path: str, kind: str, *attributes: tuple[str, Any], mode: bool | None = None
) -> ModuleFact:
    return ModuleFact(path, kind, attributes, mode)


def contract(*block: tuple[str, Any]) -> Contract:
    """Of Model; `block` is what the forward of a block reads beside its modules."""
    modules = [fact("", f"{__name__}:Model", ("factor", 3))]
    modules.append(
        fact("blocks", "torch.nn.modules.container:Sequential", ("_modules", ("0", "1", "2")))
    )
    weights = []
    for n in range(3):
        modules += [
            fact(f"blocks.{n}", f"{__name__}:Block", *block),
            fact(f"blocks.{n}.fc", "torch.nn.modules.linear:Linear", ("in_features", 4)),
            fact(
                f"blocks.{n}.norm",
                "torch.nn.modules.batchnorm:BatchNorm1d",
                ("eps", 1e-5),
                mode=True,
            ),
        ]
        weights.append(WeightFact(f"blocks.{n}.fc.weight", tensor(4, 4)))
        weights.append(WeightFact(f"blocks.{n}.norm.running_mean", tensor(4)))
    return Contract("self, x", (), tuple(weights), tuple(modules), ())


def test_of(*block: tuple[str, Any]) -> Callable[..., bool]:
    return eval(facts_text(contract(*block), __name__), NAMES)


test_of.__test__ = False  # type: ignore[attr-defined]


def test_the_mode_of_the_model_itself_is_asked() -> None:
    """Though nothing else of it is: neither a weight, nor a value, nor a module."""
    alone = Contract("self, x", (), (), (fact("", f"{__name__}:Model", mode=False),), ())
    assert has_facts(alone)
    holds, model = eval(facts_text(alone, __name__), NAMES), Model().eval()
    assert is_known(holds, model)
    assert not holds(model.train(), DEVICES)
    assert not has_facts(Contract("self, x", (), (), (fact("", f"{__name__}:Model"),), ()))


def test_equal_blocks_add_nothing_to_the_text() -> None:
    assert paths_text([f"blocks.{n}.conv" for n in range(40)]) == ['_paths("blocks.0-39.conv")']
    listed = [f"a.{n}.b" for n in (*range(9), 11)] + ["c", "d.7"]
    assert paths_text(listed) == ['_paths("a.0-8,11.b c d.7")']
    nested = [f"stage.{i}.{j}.fc" for i in range(3) for j in range(2)]
    assert paths_text(nested) == ['_paths("stage.0-2.0-1.fc")']
    zeros = [f"a_long_name_of_a_list.0{n}" for n in range(1, 4)]
    assert paths_text(zeros) == ['_paths("a_long_name_of_a_list.01,02,03")']


def test_few_paths_and_unusual_names_are_a_list() -> None:
    assert paths_text(["norm.weight", "norm.bias"]) == ['["norm.weight", "norm.bias"]']
    odd = [f"odd name.{n}" for n in range(9)]
    assert eval("".join(paths_text(odd))) == odd
    assert eval("".join(paths_text([""]))) == [""]


def test_names_that_stand_for_each_other_are_written_between_commas() -> None:
    norm = [
        f"layer1.{n}.bn{k}.{leaf}" for n in (0, 1) for k in (1, 2) for leaf in ("weight", "bias")
    ]
    assert paths_text(norm) == ['_paths("layer1.0-1.bn1,bn2.weight,bias")']
    listed = ["first.fc.weight", "first.fc.bias", "weight", "first.block", "second.block"]
    assert paths_text(listed) == ['_paths("first.fc.weight,bias weight first,second.block")']


@pytest.mark.parametrize("seed", range(20))
def test_the_support_reads_what_is_written(seed: int) -> None:
    """All of some paths that are alike in parts, and no others."""
    draw = random.Random(seed)
    parts = [["a", "b", "c1", "0", "1", "2", "4"], ["x", "y", "3", "4"], ["weight", "bias"]]
    every = [tuple(map(draw.choice, parts[: draw.randint(1, 3)])) for _ in range(30)]
    paths = sorted({".".join(path) for path in every})
    read = eval("(" + "\n".join(paths_text(paths)) + ")", NAMES)
    assert sorted(read) == paths


def test_each_row_is_of_what_is_alike() -> None:
    text = facts_text(contract(("scale", 2.0)), __name__)
    assert text.count("torch.nn.Linear") == 1 and '_paths("blocks.0-2.fc")' in text
    assert '"eps": 1e-05, "training": True}' in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100


CHANGES: dict[str, Callable[[Model], object]] = {
    "a hook": lambda m: m.blocks[1].fc.register_forward_hook(lambda *args: None),
    "a hook before": lambda m: m.blocks[1].register_forward_pre_hook(lambda *args: None),
    "a hook of gradients": lambda m: m.blocks[2].fc.register_full_backward_hook(lambda *a: None),
    "another module": lambda m: setattr(m.blocks[1], "fc", nn.Linear(4, 4, bias=False).double()),
    "no module": lambda m: delattr(m.blocks[1], "fc"),
    "another class": lambda m: setattr(m.blocks[1].fc, "__class__", nn.Bilinear),
    "a forward of its own": lambda m: setattr(m.blocks[1].fc, "forward", lambda x: x),
    "an attribute": lambda m: setattr(m.blocks[2].norm, "eps", 1e-3),
    "an attribute of another type": lambda m: setattr(m, "factor", 3.0),
    "an attribute less": lambda m: delattr(m.blocks[0].norm, "eps"),
    "the mode": lambda m: m.blocks[2].norm.eval(),
    "the module's own attribute": lambda m: setattr(m, "factor", 4),
    "one module more": lambda m: m.blocks.append(Block()),
    "modules in another order": lambda m: m.blocks._modules.update(
        {"0": m.blocks._modules.pop("0")}
    ),
    "the weight's dtype": lambda m: m.blocks[1].fc.double(),
    "the weight's shape": lambda m: setattr(
        m.blocks[1].fc.weight, "data", m.blocks[1].fc.weight.data[:2]
    ),
    "a buffer's shape": lambda m: setattr(m.blocks[1].norm, "running_mean", torch.zeros(5)),
    "no weight": lambda m: setattr(m.blocks[1].fc, "weight", None),
    "a weight in front": lambda m: m.blocks[1].fc.__dict__.update(weight=torch.zeros(5)),
    "the device": lambda m: m.blocks[1].fc.to("meta"),
    "all attributes": lambda m: setattr(m, "__dict__", {**m.__dict__, "factor": 5}),
}


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_noticed(change: str, known: bool) -> None:
    holds, model = test_of(), Model()
    if known:
        assert is_known(holds, model)
    CHANGES[change](model)
    assert not holds(model, DEVICES)


def is_known(holds: Callable[..., bool], model: Model, **asked: bool) -> bool:
    """Whether the model is right, and what was read of it is kept: it is not asked for again."""
    assert holds(model, DEVICES, **asked)
    modules, model._modules = model._modules, {}  # as nothing that was read holds them
    try:
        return holds(model, DEVICES, **asked)
    finally:
        model._modules = modules


@pytest.mark.parametrize("block", [("scale", 2.0), ("sizes", [1, 2]), ("fc.in_features", 4)])
def test_what_objects_do_not_tell_is_asked_each_time(block: tuple[str, Any]) -> None:
    holds, model = test_of(block), Model()
    assert holds(model, DEVICES) and holds(model, DEVICES)
    model.blocks[1].sizes.append(3)
    model.blocks[1].fc.in_features = 5
    model.blocks[1].scale = 3.0
    assert not holds(model, DEVICES)


def test_values_that_cannot_be_compared_are_of_a_type() -> None:
    holds, model = test_of(("kind", OpaqueValue(f"{__name__}:Kind"))), Model()
    assert holds(model, DEVICES)
    model.blocks[1].kind = Kind()
    assert holds(model, DEVICES)
    model.blocks[1].kind = 1
    assert not holds(model, DEVICES)


def test_what_changes_nothing_is_still_right() -> None:
    holds, model = test_of(), Model()
    assert is_known(holds, model)
    model.blocks[1].fc = nn.Linear(4, 4)
    model.blocks[0].fc.weight = nn.Parameter(torch.zeros(4, 4))
    with torch.no_grad():
        model.blocks[2].fc.weight.zero_()
    model.anything = 1
    assert holds(model, DEVICES)
    assert holds(copy.deepcopy(model), DEVICES)


def test_other_devices() -> None:
    holds, model = test_of(), Model()
    assert is_known(holds, model) and not holds(model, (torch.device("cuda", 0),))
    assert holds(model, DEVICES)


def test_gradients_that_may_not_be_asked_for() -> None:
    holds, model = test_of(), Model()
    assert not holds(model, DEVICES, gradients=False)
    with torch.no_grad():
        assert is_known(holds, model, gradients=False)
    assert not holds(model, DEVICES, gradients=False)
    assert is_known(holds, model.requires_grad_(False), gradients=False)
    model.blocks[1].fc.weight.requires_grad_()
    assert not holds(model, DEVICES, gradients=False)


def test_a_model_that_is_known_costs_no_python_frames_a_module() -> None:
    model, frames = Model(), 0
    holds = test_of()
    assert holds(model, DEVICES)

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal frames
        frames += event == "call"

    sys.setprofile(count)
    try:
        assert holds(model, DEVICES)
    finally:
        sys.setprofile(None)
    assert frames < 12


def test_a_model_is_not_kept_alive() -> None:
    holds, model = test_of(), Model()
    assert is_known(holds, model)
    weight, gone = weakref.ref(model.blocks[0].fc.weight), weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None and weight() is None


def test_a_model_in_the_place_of_another_is_asked_anew() -> None:
    """What is known goes by the place in memory, which is free when the model is gone."""
    holds, model = test_of(), Model()
    assert is_known(holds, model)
    closed: Any = inspect.getclosurevars(holds).nonlocals
    known = closed["known"]
    entry = known[id(model)]
    other = Model()
    other.factor = 4
    known[id(other)] = entry  # as if it were at the first one's place
    assert not holds(other, DEVICES)
    del model, entry
    gc.collect()
    assert [*known] == [id(other)]
