"""The stage as a whole: the example models, several outputs, nested inputs."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from tests.capturing import assert_agrees, assert_same, captured, module_of, ops_of
from tests.examples import EXAMPLES, example_names
from torch import nn

from opweld.errors import CaptureError


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    large = [name for name, size in vars(module).items() if name.isupper() and size > 16]
    for size in large:
        setattr(module, size, 6 if size == "ROWS" else 16)
    return module


@pytest.mark.parametrize("name", example_names())
def test_examples(name: str) -> None:
    """The graph agrees with the model at the captured batch size and at others."""
    source = example(name)
    model = source.Model(*source.get_init_inputs())
    given = source.get_inputs()
    batch = given[0].shape[0]
    result = captured(model, *given)
    fact = result.variants[0].contract.symbols[0]
    assert (fact.name, fact.lower, fact.upper, fact.example) == ("s0", 0, None, batch)
    for rows in (batch, 1, 0, 5):
        inputs = [
            torch.randn(rows, *x.shape[1:], dtype=x.dtype) if x.shape[0] == batch else x
            for x in given
        ]
        assert_agrees(result.variants[0], model, *inputs)


def test_written_out_gelu_is_eight_operations() -> None:
    model = example("gelu").Model()
    graph = assert_same(model, torch.randn(4, 8))
    assert ops_of(graph) == ["mul", "pow", "mul", "add", "mul", "tanh", "add", "mul"]
    places = {origin.place for _, origin in graph.origins}
    assert places == {"gelu.py:13", "gelu.py:14"}


def test_nested_inputs_and_outputs() -> None:
    def forward(self, pair, options, *, scale=2.0, mode="sum"):
        total = pair[0] + pair[1] * scale if mode == "sum" else pair[0]
        return {"total": total, "parts": [options["a"] * total, (total.shape[0], None, 7)]}

    model = module_of(forward)
    pair = (torch.randn(4, 3), torch.randn(4, 3))
    options = {"a": torch.randn(3)}
    result = captured(model, pair, options, scale=3.0)
    assert_agrees(result.variants[0], model, pair, options, scale=3.0)
    contract = result.variants[0].contract
    assert contract.signature == "self, pair, options, *, scale=2.0, mode='sum'"
    facts = {fact.access: fact.literal for fact in contract.inputs if fact.type is None}
    assert facts == {
        "type(pair).__name__": "tuple",
        "len(pair)": 2,
        "type(options).__name__": "dict",
        "tuple(options)": ("a",),
        "scale": 3.0,
        "mode": "sum",
    }
    typed = [fact.access for fact in contract.inputs if fact.type is not None]
    assert typed == ["pair[0]", "pair[1]", "options['a']"]


def test_autocast_gives_variants_only_where_it_acts() -> None:
    pointwise = captured(module_of(lambda self, x: torch.exp(x) * 2), torch.randn(4, 8))
    assert pointwise.variants[0].also == ("bfloat16", "float16")
    assert len(pointwise.variants) == 1
    model = module_of(lambda self, x: torch.relu(self.fc(x)), fc=nn.Linear(8, 3))
    x = torch.randn(4, 8)
    result = captured(model, x)
    assert [v.autocast for v in result.variants] == [None, "bfloat16", "float16"]
    for variant in result.variants[1:]:
        assert ops_of(variant.graph) == ["aten.linear.default", "relu"]
        with torch.autocast("cpu", dtype=getattr(torch, variant.autocast)):
            expected = model(x)
        with torch.autocast("cpu", enabled=False):
            assert_agrees_with(variant, model, x, expected)


def assert_agrees_with(variant, model, x, expected) -> None:
    from tests.capturing import run

    (ours,) = run(variant, model, x)
    torch.testing.assert_close(ours, expected)


def test_a_forward_that_raises_is_told_with_the_sizes_of_the_example() -> None:
    class Mismatched(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.ones(5, 2)

    with pytest.raises(CaptureError, match=r"\[3, 4\]") as raised:
        captured(Mismatched(), torch.ones(3, 4))
    assert "s77" not in str(raised.value)


def test_a_bound_of_nan_is_eager_s() -> None:
    """Of all forms torch 2.11 ignores one alone by torch.clamp, and returns NaN for the others."""
    from tests.capturing import module_of, run
    from tests.spelled import run_spelled

    nan, x = float("nan"), torch.tensor([1.0, -2.0])
    module = module_of(
        lambda _, x: (
            torch.clamp(x, min=nan) * 2,
            torch.clamp(x, max=nan) * 2,
            torch.clamp_min(x, nan) * 2,
            torch.clamp(x, nan, 1.0) * 2,
        )
    )
    variant = captured(module, x).variants[0]
    for found in (run(variant, module, x), run_spelled(variant.graph, module, x)):
        for one, eager in zip(found, module(x), strict=True):
            torch.testing.assert_close(one, eager, equal_nan=True)
