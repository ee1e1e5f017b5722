"""Calls without kernels of their own run the original, and one warning says which option helps."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import kernels_in, load_file
from torch import nn

from opweld.driver import compile_file
from opweld.options import Options

SOURCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)
    def forward(self, x):
        return torch.nn.functional.gelu(self.norm(self.fc(x))) * 2
def get_inputs():
    return [torch.randn(6, 8)]
def get_init_inputs():
    return []
"""
X = torch.randn(6, 8)
Make = Callable[..., nn.Module]


@pytest.fixture(scope="module")
def files(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A class anew, which has told nothing, from the file that was made with these options."""
    folder = tmp_path_factory.mktemp("fallback")
    texts: dict[str, str] = {}
    model = folder / "small.py"
    model.write_text(SOURCE)

    def make(**asked: Any) -> nn.Module:
        key = repr(asked)
        if key not in texts:
            texts[key] = compile_file(model, Options(target="cpu", check=False, **asked)).text
        torch.manual_seed(0)
        return load_file(folder / f"new_{len(texts)}.py", texts[key]).ModelNew()

    return make


def told(call: Callable[[], Any]) -> list[str]:
    """What a call warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught if "ModelNew" in str(each.message)]


def under(dtype: torch.dtype, call: Callable[[], Any]) -> Callable[[], Any]:
    def within() -> Any:
        with torch.autocast("cpu", dtype=dtype):
            return call()

    return within


def sentence(cause: str, options: str) -> str:
    return (
        f"small: ModelNew ran the original: {cause}; opweld optimize {options} makes kernels for it"
    )


def test_each_cause_is_told_once_a_class(files: Make) -> None:
    new = files()
    assert told(lambda: new(X)) == [] and kernels_in(lambda: new(X)) == 1
    in_autocast = under(torch.bfloat16, lambda: new(X))
    wanted = sentence("autocast to bfloat16 is on", "--autocast bfloat16")
    assert told(in_autocast) == [wanted] and kernels_in(in_autocast) == 0
    other = type(new)().eval()
    wanted = sentence("it is in eval mode", "--mode both")
    assert told(lambda: other(X)) == [wanted] and kernels_in(lambda: other(X)) == 0
    half = copy.deepcopy(new).double()
    wanted = sentence("its tensors are float64", "--dtype float64")
    assert told(lambda: half(X.double())) == [wanted]
    calls = [in_autocast, lambda: other(X), lambda: half(X.double())]
    assert [told(call) for call in calls] == [[], [], []]
    assert told(lambda: files()(X.requires_grad_())) == []


def test_a_call_of_other_sizes_warns_once(files: Make) -> None:
    new = files()
    wide = torch.randn(5, 9)
    words = re.escape(sentence("an input is of [5, 9], not [*, 8]", "--dynamic INPUT:AXIS"))
    with pytest.warns(UserWarning, match=words), pytest.raises(RuntimeError):
        new(wide)  # which the original does not take
    with warnings.catch_warnings(), pytest.raises(RuntimeError):
        warnings.simplefilter("error")
        new(wide)
    assert told(lambda: new(X[:2])) == []


def test_several_causes_are_one_warning(files: Make) -> None:
    new = files().double().eval()
    wanted = sentence(
        "it is in eval mode and its tensors are float64", "--mode both --dtype float64"
    )
    assert told(lambda: new(X.double())) == [wanted]


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        ({"mode": "both"}, lambda new: (new.eval(), X, None)),
        ({"mode": "eval"}, lambda new: (new.eval(), X, None)),
        ({"autocast": ("bfloat16",)}, lambda new: (new, X, torch.bfloat16)),
        ({"dtype": ("float64",)}, lambda new: (new.double(), X.double(), None)),
    ],
    ids=["both", "eval", "autocast", "dtype"],
)
def test_the_option_makes_kernels_for_it(
    asked: dict[str, Any], change: Callable[[Any], Any], files: Make
) -> None:
    new, x, autocast = change(files(**asked))
    old = type(new).__bases__[0]().to(x.dtype).train(new.training)
    old.load_state_dict(new.state_dict())
    old_call, new_call = (lambda: old(x)), (lambda: new(x))
    if autocast:
        old_call, new_call = under(autocast, old_call), under(autocast, new_call)
    assert told(new_call) == []
    new.load_state_dict(old.state_dict())
    close = {"rtol": 2e-2, "atol": 2e-2} if autocast else {}
    torch.testing.assert_close(new_call(), old_call(), **close)
    assert kernels_in(new_call) == 1


def test_other_causes_are_not_told(files: Make) -> None:
    """No option helps there."""
    hooked = files()
    hooked.fc.register_forward_hook(lambda *given: None)
    other = files()
    other.fc.weight = nn.Parameter(torch.randn(16, 8))
    other.fc.bias, other.norm = nn.Parameter(torch.randn(16)), nn.BatchNorm1d(16)
    frozen = files()
    frozen.norm.eval()
    for new in (hooked, other, frozen):
        assert kernels_in(lambda: new(X)) == 0  # noqa: B023
        assert told(lambda: new(X)) == []  # noqa: B023


@pytest.mark.parametrize("trace", ["compile", "export", "strict export", "vmap", "jit"])
def test_a_trace_of_the_original_is_whole_and_silent(trace: str, files: Make) -> None:
    new = files().eval()
    wanted = type(new).__bases__[0]().eval()
    wanted.load_state_dict(new.state_dict())
    found: list[Any] = []

    def run() -> None:
        if trace == "compile":
            torch._dynamo.reset()
            found.append(torch.compile(new, fullgraph=True, backend="eager")(X))
        elif trace == "vmap":
            found.append(torch.vmap(new)(X[None])[0])
        elif trace == "jit":
            found.append(torch.jit.trace(new, (X,))(X))
        else:
            program = torch.export.export(new, (X,), strict=trace.startswith("strict"))
            found.append(program.module()(X))

    said = told(run)
    torch.testing.assert_close(found[0], wanted(X))
    # vmap and jit.trace run the forward itself, as any other call does.
    assert len(said) == (trace in ("vmap", "jit"))
