"""Small forwards whose calls are replayed, or must not be, beside those of Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.behaviour.emitted import load_file
from tests.behaviour.replaying import Watch, by_python

from opweld.driver import compile_file
from opweld.emission import replay
from opweld.options import Options

SOURCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(6))
        self.register_buffer("places", torch.tensor([2, 0, 5, 5]))
        self.register_buffer("square", torch.arange(36.0).reshape(6, 6) / 36)

    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return []
"""
# Forwards with the call that is the first to be replayed, None where none may be.
BODIES = {
    "sorted": (
        None, "return torch.tanh(torch.sort(torch.sigmoid(x) * self.weight)[0].cumsum(1)) * 2"
    ),
    "the input itself": (
        2, "return x, torch.tanh(x.softmax(0)) * self.weight.cumsum(0), x.view(-1)"
    ),
    "a weight": (
        2, "return self.weight, torch.tanh((x * self.weight).softmax(0)).cumsum(1).softmax(0)"
    ),
    "what sizes alone decide": (
        2,
        "at = torch.arange(6, device=x.device)\n"
        "        mask = at[None] <= at[:4, None]\n"
        "        y = torch.tanh((x * self.weight).masked_fill(mask, -1.0).softmax(0)).cumsum(1)\n"
        "        return y.softmax(1), torch.ones(3, device=x.device)",
    ),
    "random numbers of no tensor": (
        None,
        "y = torch.tanh((x * self.weight).softmax(0)) + torch.rand(6, device=x.device)\n"
        "        return y.softmax(0) * self.weight.cumsum(0)",
    ),
    "a product with a sum": (
        2,
        "y = torch.tanh(torch.addmm(self.weight, x, self.square).softmax(0)).cumsum(1)\n"
        "        return torch.addmm(self.weight, y.softmax(0), self.square.t()).cumsum(0)",
    ),
    "random": (
        None,
        "return torch.tanh(torch.dropout(torch.sigmoid(x), 0.5, True).softmax(1)) "
        "* self.weight.cumsum(0)",
    ),
    "a dropout of one call": (
        2,
        "y, _ = torch.native_dropout(torch.sigmoid(x * self.weight), 0.5, True)\n"
        "        return torch.tanh(y.softmax(1)).cumsum(0)",
    ),
    "numbers of places": (
        2, "return torch.tanh((x * self.weight).cumsum(0)[:, self.places].softmax(1)).cumsum(1)"
    ),
    "memory formats": (
        2,
        "y = torch.tanh(x * self.weight).cumsum(1).view(2, 2, 3, 2)\n"
        "        z = torch.sigmoid(y.contiguous(memory_format=torch.channels_last)).softmax(1)\n"
        "        return z.clone(memory_format=torch.contiguous_format).cumsum(2), z",
    ),
    "many results of a kernel": (
        2,
        "y = torch.tanh(x).softmax(1)\n"
        "        return y.cumsum(0), self.weight.exp(), *[x * k + x.sin() for k in range(16)]",
    ),
    "attention": (
        2,
        "y = torch.tanh(x * self.weight).view(1, 1, 4, 6)\n"
        "        y = torch.nn.functional.scaled_dot_product_attention(y, y, y, scale=0.3)\n"
        "        return torch.sigmoid(y).cumsum(2).softmax(3)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_other_forwards(
    body: str, build_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_FEWEST", 3)
    first, text = BODIES[body]
    name = f"extra_{body.replace(' ', '_')}"
    path = tmp_path / f"{name}.py"
    path.write_text(SOURCE.replace("{body}", text), "utf-8")
    emitted = compile_file(path, Options(target="cpu", check=False)).text
    file = load_file(tmp_path / f"{name}_new.py", emitted)
    net = file.ModelNew()
    with torch.no_grad(), Watch(file) as ways:
        for seed in range(5):
            torch.manual_seed(seed)
            x = torch.randn(4, 6)
            torch.manual_seed(seed)
            result = net(x)
            torch.manual_seed(seed)
            python = by_python(file, net, x)
            torch.manual_seed(seed)
            eager = type(net).__mro__[1].forward(net, x)
            each = [y if isinstance(y, tuple) else (y,) for y in (result, python, eager)]
            for ours, same, close in zip(*each, strict=True):
                assert torch.equal(ours, same) and ours.stride() == same.stride()
                torch.testing.assert_close(ours, close)
                assert (ours is x, ours is net.weight) == (close is x, close is net.weight)
            if body == "what sizes alone decide":
                result[1].zero_()  # the next call gives ones again
    assert [at for at, way in enumerate(ways) if way == "replayed"][:1] == ([first] * bool(first))


@pytest.mark.parametrize(
    ("calls", "training", "is_replayed"),
    [(4, False, False), (5, False, True), (2, True, False), (3, True, True)],
)
def test_how_many_calls_are_worth_it(
    calls: int, training: bool, is_replayed: bool, tmp_path: Path
) -> None:
    """Python makes fewer in less time; a step makes more of them than its forward."""
    scans = [f"x = (x * self.weight).cumsum({i % 2})" for i in range(calls)]
    path = tmp_path / "scans.py"
    path.write_text(SOURCE.replace("{body}", "\n        ".join([*scans, "return x"])), "utf-8")
    text = compile_file(path, Options(target="cpu", check=False, training=training)).text
    assert ("_kernels.replay(" in text) == is_replayed
