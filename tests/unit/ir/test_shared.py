"""Kernels that groups of a file share: those that differ in names alone, and no others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from tests.unit.plan.plans import Make, graph
from torch import nn

from opweld.compiled import Compiled
from opweld.driver import compile_module
from opweld.ir.kernels.shared import kernels_of, sharing
from opweld.ir.original import Original, Part
from opweld.lower import lower
from opweld.options import Options
from opweld.pipeline import excluded_for
from opweld.plan import make_plan
from opweld.target import SM_90A


def compiled(module: nn.Module, *inputs: torch.Tensor, target: str = "cpu") -> Compiled:
    original = Original("model.py", "model", type(module).__name__, None)
    return compile_module(module.eval(), inputs, {}, original, Options(target=target))


def calls(module: nn.Module, *inputs: torch.Tensor, target: str = "cpu") -> Counter[str]:
    """How often the forward calls each kernel, by its name without its number."""
    made = compiled(module, *inputs, target=target)
    return Counter(row.name for row in made.main_rows if row in made.fused)


class Layers(nn.Module):
    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = torch.tanh(norm(layer(x)) * 2.0)
        return x


def test_layers_of_one_form_have_one_kernel() -> None:
    assert " (3 times): " in compiled(Layers(8, 8, 8, 8), torch.randn(5, 8)).text
    assert list(calls(Layers(8, 8, 8, 8), torch.randn(5, 8)).values()) == [3]
    assert list(calls(Layers(8, 8, 8, 9), torch.randn(5, 8)).values()) == [2, 1]


def test_a_product_keeps_the_weights_of_all_its_sites() -> None:
    model = Layers(4096, 4096, 4096, 4096)
    made = compiled(model, torch.randn(512, 4096), target="sm_90a")
    products = Counter(r.name for r in made.main_rows if r.kind == "contraction")
    assert list(products.values()) == [3]
    assert "*new host::Held(3);" in made.text
    assert (
        "*new host::Held;"
        in compiled(Layers(4096, 4096), torch.randn(512, 4096), target="sm_90a").text
    )


class Words(nn.Module):
    """A name is a word that elsewhere says what an operation does."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__()
        for name in (first, second):
            self.register_buffer(name, torch.randn(8))
        self.names = (first, second)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = (getattr(self, name) for name in self.names)
        exp = (torch.exp(x * a) + a).sin()
        return exp, (torch.log(exp.flip(0) * b) + b).sin()


@pytest.mark.parametrize("names", [("exp", "log"), ("exp_1", "log_1"), ("x_1", "x_2"), ("a", "b")])
def test_names_do_not_hide_what_differs(names: tuple[str, str]) -> None:
    model = Words(*names)
    x = torch.rand(6, 8) + 1
    assert list(calls(model, x).values()) == [1, 1]


class Numbers(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in (0.0, -0.0, 2.0, 2.0):
            x = torch.sort(torch.sin(x) * number)[0]
        return x


def test_numbers_tell_kernels_apart() -> None:
    assert list(calls(Numbers(), torch.randn(6, 8)).values()) == [1, 1, 2]


def test_kernels_whose_gradients_are_computed_otherwise_stay_two() -> None:
    m = Make()
    x, weights = m.x("x", 512, 4096), [m.w(name, 4096, 4096) for name in "vw"]
    products = [m.product("mm", x, w, shape=(512, 4096)) for w in weights]
    attrs = replace(products[1].attrs, summed_in_parts=True)
    in_parts = m.arena.call(products[1].inputs, attrs)
    for second, kernels in ((products[1], 1), (in_parts, 2)):
        plan = make_plan(graph(products[0], second), SM_90A)
        part = Part(None, plan, lower(plan))  # type: ignore[arg-type]
        assert len(kernels_of(sharing((part,)))) == kernels


def test_all_groups_of_a_kernel_that_loses_are_given_back() -> None:
    made = compiled(Layers(8, 8, 8), torch.randn(5, 8))
    (name,) = {row.name for row in made.fused if not row.variant}
    rows = tuple(row for row in made.main_rows if row in made.fused)
    by_lines = excluded_for(frozenset([name]), rows, frozenset())
    by_names = excluded_for(frozenset([name]), rows, by_lines)
    assert len(by_names) == 2 and name in by_names
