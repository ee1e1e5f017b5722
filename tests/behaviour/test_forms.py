"""Models of other forms: how they take arguments, what they hold, and what they return."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in, load_file
from torch import nn
from torch.utils import _pytree as pytree

from opweld.driver import compile_file
from opweld.options import Options

HEAD = """import functools

import torch
from torch import nn
from torch.nn import functional as F

"""
TAIL = "\n\ndef get_init_inputs():\n    return []\n"

FORMS = {
    "nested_arguments": """
class Model(nn.Module):
    def forward(self, pair, options, *, scale=2.0, flag=True):
        x, y = pair
        z = torch.tanh(x * scale) + y if flag else x
        return {"first": [z, z * options["w"]["k"]], "second": (options["b"],)}


def get_inputs():
    pair = (torch.randn(4, 8), torch.randn(4, 8))
    return [pair, {"w": {"k": torch.randn(8)}, "b": torch.ones(3)}]
""",
    "variadic": """
class Model(nn.Module):
    def forward(self, first, *rest):
        return torch.sigmoid(first) * rest[0] + rest[1], len(rest)


def get_inputs():
    return [torch.randn(4, 8), torch.randn(4, 8), torch.randn(8)]
""",
    "several_groups": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.norm = nn.BatchNorm1d(8)
        self.act = F.silu

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(self.act(layer(x)) * 2.0)
        return self.norm(x).relu()


def get_inputs():
    return [torch.randn(6, 8)]
""",
    "integers_and_booleans": """
class Model(nn.Module):
    def forward(self, x, index):
        positive = (x * 2.0 + 1.0) > 0.5
        shifted = torch.where(positive, x.exp(), -x)
        return shifted, positive, index * 2 + 1, positive.to(torch.int64) + index


def get_inputs():
    return [torch.randn(5, 7), torch.randint(0, 9, (5, 7))]
""",
    "selects": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        part = x[:, 1:2]
        last = self.fc(x[..., -1]) + self.fc(part.reshape(-1, 8))
        return torch.tanh(self.fc(x[:, 2]) * 2) + last, self.fc(part), x[:, 3]


def get_inputs():
    return [torch.randn(5, 8, 8)]
""",
    "views": """
class Model(nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        gated = a * torch.sigmoid(b)
        turned = gated.transpose(1, 2).reshape(x.shape[0], -1)
        return torch.cat((turned.exp(), turned.neg()), dim=1), F.pad(gated[:, 1:].tanh(), (1, 2))


def get_inputs():
    return [torch.randn(3, 4, 10)]
""",
    "buffers_and_scalars": """
class Config:
    def __init__(self):
        self.slope = 0.25
        self.limits = (-1.0, 1.0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.register_buffer("mean", torch.randn(6))
        self.register_buffer("step", torch.tensor(0.5))

    def forward(self, x):
        y = F.leaky_relu((x - self.mean) * self.step, self.config.slope)
        return y.clamp(*self.config.limits).sum(dim=1), y.mean()


def get_inputs():
    return [torch.randn(5, 6)]
""",
    "positions": """
class Model(nn.Module):
    def forward(self, x):
        position = torch.arange(x.shape[1], device=x.device)
        angle = position * 0.5 + x.shape[0]
        return x * torch.cos(angle) + torch.sin(angle)


def get_inputs():
    return [torch.randn(5, 6)]
""",
    "functions_held": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.double = lambda x: x * 2
        self.smooth = functools.partial(F.gelu, approximate="tanh")
        self.act = torch.tanh

    def forward(self, x):
        return self.double(x) + self.smooth(x) * self.act(x)


def get_inputs():
    return [torch.randn(4, 8)]
""",
    "tied_weights": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8)
        self.b.weight = self.a.weight
        self.twice = nn.LeakyReLU(0.2)
        self.again = self.twice

    def forward(self, x):
        return self.again(self.b(self.twice(self.a(x)) * 2) + 1)


def get_inputs():
    return [torch.randn(4, 8)]
""",
    "values_of_no_input": """
class Model(nn.Module):
    def forward(self, x):
        steps = torch.arange(8, device=x.device) * 2.5 + x.shape[0]
        ones = torch.zeros(3, device=x.device) + 1
        return x.exp(), steps, ones, torch.full((2,), 0.5, dtype=x.dtype), x.neg() + steps


def get_inputs():
    return [torch.randn(4, 8)]
""",
    "sizes_and_tables": """
class Model(nn.Module):
    def forward(self, x):
        table = torch.tensor([[float(row * column) for column in range(8)] for row in range(2)])
        steps = torch.linspace(0, 1, 8) + table.to(x.device).sum(0)
        return torch.tanh(x) * steps, x.shape[0], [x.shape[1] * x.shape[0], None]


def get_inputs():
    return [torch.randn(4, 8)]
""",
    "names_that_texts_use": """
class Model(nn.Module):
    def forward(self, s0, torch_, end, result, expect, float, device=None):
        return s0.exp() + torch_ * end, result + expect * float


def get_inputs():
    return [torch.randn(4, 8) for _ in range(6)]
""",
    "channels_last": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x):
        return F.gelu(self.conv(x) * 0.5) * self.scale


def get_inputs():
    return [torch.randn(2, 3, 8, 8)]
""",
}

Loaded = tuple[ModuleType, ModuleType]


@pytest.fixture(scope="module")
def files(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Loaded]:
    folder = tmp_path_factory.mktemp("forms")
    made: dict[str, Loaded] = {}

    def get(name: str) -> Loaded:
        if name not in made:
            original = load_file(folder / f"{name}.py", HEAD + FORMS[name].lstrip("\n") + TAIL)
            with tempfile.TemporaryDirectory():
                options = Options(target="cpu", mode="both", check=False)
                text = compile_file(folder / f"{name}.py", options).text
            made[name] = original, load_file(folder / f"{name}_new.py", text)
        return made[name]

    return get


def models(loaded: Loaded) -> tuple[Any, Any]:
    made = []
    for cls in (loaded[0].Model, loaded[1].ModelNew):
        torch.manual_seed(0)
        made.append(cls().eval())
    return made[0], made[1]


def assert_same(new: Any, old: Any) -> None:
    ours, spec = pytree.tree_flatten(new)
    theirs, expected = pytree.tree_flatten(old)
    assert spec == expected
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, check_stride=True)
        else:
            assert a == b and type(a) is type(b)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_results(files: Callable[[str], Loaded], name: str) -> None:
    loaded = files(name)
    old, new = models(loaded)
    inputs = loaded[0].get_inputs()
    with torch.no_grad():
        assert_same(new(*inputs), old(*inputs))
        assert kernels_in(lambda: new(*inputs)) > 0


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients(files: Callable[[str], Loaded], name: str) -> None:
    loaded = files(name)
    torch.manual_seed(3)
    inputs = loaded[0].get_inputs()
    found = []
    for model in models(loaded):
        fresh = pytree.tree_map_only(torch.Tensor, _leaf, inputs)
        wanted = [x for x in pytree.tree_leaves(fresh) if _takes_gradient(x)]
        wanted += list(model.parameters())
        results = [r for r in pytree.tree_leaves(model(*fresh)) if _takes_gradient(r)]
        loss = sum((r * r.detach().cos()).sum() for r in results)
        found.append(torch.autograd.grad(loss, wanted, allow_unused=True))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def _leaf(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_() if x.is_floating_point() else x.clone()


def _takes_gradient(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad


@pytest.mark.parametrize("name", sorted(FORMS))
def test_compiled_whole(files: Callable[[str], Loaded], name: str) -> None:
    torch._dynamo.reset()
    loaded = files(name)
    old, new = models(loaded)
    inputs = loaded[0].get_inputs()
    with torch.no_grad():
        assert_same(torch.compile(new, fullgraph=True)(*inputs), old(*inputs))


def test_channels_last_stays(files: Callable[[str], Loaded]) -> None:
    loaded = files("channels_last")
    old, new = (m.to(memory_format=torch.channels_last) for m in models(loaded))
    (x,) = loaded[0].get_inputs()
    x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        assert_same(new(x), old(x))
        assert kernels_in(lambda: new(x)) > 0


def test_arguments_in_another_form(files: Callable[[str], Loaded]) -> None:
    """What the graph was not captured for goes to the original, containers included."""
    loaded = files("nested_arguments")
    old, new = models(loaded)
    (x, y), options = loaded[0].get_inputs()
    w, b = options["w"]["k"], options["b"]
    calls = [
        (([x, y], options), {}),
        (((x, y), {"b": b, "w": {"k": w}}), {}),
        (((x, y), options), {"scale": 3.0}),
        (((x, y), options), {"scale": 2}),
        (((x, y), options), {"flag": False}),
    ]
    for args, kwargs in calls:
        assert_same(new(*args, **kwargs), old(*args, **kwargs))
    assert kernels_in(lambda: new((x, y), options, scale=2.0, flag=True)) > 0
    assert kernels_in(lambda: new((x, y), options, scale=2)) == 0
    assert kernels_in(lambda: new((x, y), options, flag=False)) == 0


def test_an_attribute_of_an_attribute(files: Callable[[str], Loaded]) -> None:
    loaded = files("buffers_and_scalars")
    old, new = models(loaded)
    inputs = loaded[0].get_inputs()
    for model in (old, new):
        model.config.slope = 0.5
    with torch.no_grad():
        assert_same(new(*inputs), old(*inputs))
        assert kernels_in(lambda: new(*inputs)) == 0


def test_a_function_held_by_the_model(files: Callable[[str], Loaded]) -> None:
    loaded = files("several_groups")
    old, new = models(loaded)
    inputs = loaded[0].get_inputs()
    for model in (old, new):
        model.act = torch.nn.functional.gelu
    with torch.no_grad():
        assert_same(new(*inputs), old(*inputs))
        assert kernels_in(lambda: new(*inputs)) == 0


def test_a_tie_that_was_cut(files: Callable[[str], Loaded]) -> None:
    loaded = files("tied_weights")
    old, new = models(loaded)
    inputs = loaded[0].get_inputs()
    other = torch.randn(8, 8)
    for model in (old, new):
        model.b.weight = nn.Parameter(other)
    with torch.no_grad():
        assert_same(new(*inputs), old(*inputs))
        assert kernels_in(lambda: new(*inputs)) == 0


def test_batch_norm_in_training(files: Callable[[str], Loaded]) -> None:
    loaded = files("several_groups")
    inputs = loaded[0].get_inputs()
    old, new = (model.train() for model in models(loaded))
    assert_same(new(*inputs), old(*inputs))
    assert_same(new.state_dict(), old.state_dict())
    assert int(new.norm.num_batches_tracked) == 1
