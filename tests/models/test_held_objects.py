"""What a forward reads of objects that its modules hold, a configuration say, and of classes.

A guard reads it once, and again only what may have changed since.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in
from tests.models.emitted import emit_module
from torch import nn

X = torch.randn(6, 8)


class Settings:
    """Such as a configuration."""

    def __init__(self, scale: float) -> None:
        self.scale, self.name, self.inner = scale, "one", Inner()


class Inner:
    def __init__(self) -> None:
        self.shift = 1


class Layer(nn.Module):
    checkpointing = False

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.kinds, self.flags = ["single", "double"], {"doubles": False}

    def forward(self, x):
        if self.checkpointing:
            return x * 7
        if self.kinds[0] == "double" or self.flags["doubles"]:
            return x * 2
        return torch.tanh(x * self.settings.scale)


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = Settings(2.0)
        self.layers = nn.ModuleList(Layer(self.settings) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + 1
        return x


def changed_scale(model: Any) -> None:
    model.settings.scale = 3.0


def other_settings(model: Any) -> None:
    model.layers[1].settings = Settings(0.5)


def flag_of_a_module(model: Any) -> None:
    model.layers[2].checkpointing = True


def other_type(model: Any) -> None:
    model.settings.scale = 2


def item_of_a_list(model: Any) -> None:
    model.layers[1].kinds[0] = "double"


def item_of_a_dict(model: Any) -> None:
    model.layers[1].flags["doubles"] = True


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return emit_module(Configured().eval(), ((X,), {}), tmp_path_factory.mktemp("held"))


def fresh(emitted: Any) -> Any:
    return type(emitted.new).adopt(Configured().eval())


def is_kept(new: Any) -> bool:
    """Whether the guard need not read all of it again."""
    return new._opweld.holds.kept(new) is not None


@pytest.mark.parametrize(
    "change",
    [
        *(changed_scale, other_settings, flag_of_a_module, other_type),
        *(item_of_a_list, item_of_a_dict),
    ],
    ids=lambda change: change.__name__,
)
def test_what_is_changed_later_is_seen(emitted: Any, change: Any) -> None:
    new = fresh(emitted)
    with torch.no_grad():
        for _ in range(3):
            assert kernels_in(lambda: new(X)) > 0
        assert is_kept(new)
        change(new)
        assert kernels_in(lambda: new(X)) == 0
        torch.testing.assert_close(new(X), super(type(new), new).forward(X))


def test_what_the_class_of_a_module_holds_is_seen(
    emitted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = fresh(emitted)
    with torch.no_grad():
        assert kernels_in(lambda: new(X)) > 0 and is_kept(new)
        with monkeypatch.context() as patch:
            patch.setattr(Layer, "checkpointing", True)
            assert kernels_in(lambda: new(X)) == 0
        assert kernels_in(lambda: new(X)) > 0


def test_what_is_computed_when_it_is_read_is_read_at_each_call(tmp_path: Path) -> None:
    emitted = emit_module(Computed().eval(), ((X,), {}), tmp_path)
    new = emitted.new
    with torch.no_grad():
        kernels = kernels_in(lambda: new(X))
        new.settings.hidden = 5.0
        assert kernels in (0, 1) and torch.equal(new(X), torch.tanh(X * 5.0) + 1)


class Computes:
    def __init__(self) -> None:
        self.hidden = 2.0

    @property
    def scale(self) -> float:
        return self.hidden


class Computed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = Computes()

    def forward(self, x):
        return torch.tanh(x * self.settings.scale) + 1
