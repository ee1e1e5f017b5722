"""What other modes, autocast and dtypes add to a file: their kernels and forwards, and no more."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from opweld.compiled import Compiled
from opweld.driver import compile_module
from opweld.emission.support import MARKER
from opweld.ir.original import Original
from opweld.options import Options


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        return nn.functional.gelu(self.norm(self.fc(x))) * 2


class Plain(nn.Module):
    """Neither the mode nor autocast matters."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        return self.drop(torch.tanh(x) * 2)


def made(module: nn.Module, **asked: Any) -> Compiled:
    original = Original(f"{type(module).__name__}.py", __name__, type(module).__name__, None)
    options = Options(target="cpu", **asked)
    return compile_module(module, (torch.randn(6, 8),), {}, original, options)


@cache
def normed(**asked: Any) -> Compiled:
    return made(Normed(), **asked)


def kernels(compiled: Compiled) -> list[str]:
    return re.findall(r"^    (\w+)=lambda op:", compiled.text, re.MULTILINE)


def guards(compiled: Compiled) -> list[str]:
    return re.findall(r"def (_opweld_fits\w*)", compiled.text)


def num_lines(compiled: Compiled) -> int:
    return compiled.text.count("\n")


def num_own_lines(compiled: Compiled) -> int:
    """Of the model: what stands before the support."""
    return compiled.text[: compiled.text.index(MARKER)].count("\n")


def told(compiled: Compiled) -> tuple[Any, ...]:
    """The modes, autocasts and dtypes that an option would make kernels for."""
    (lists,) = re.findall(r"_teller\(\"\w+\", (.*?\)), \[", compiled.text)
    return eval(f"({lists},)")


def test_the_example_alone_has_one_forward_of_its_own_mode() -> None:
    assert [len(kernels(normed())), guards(normed())] == [1, ["_opweld_fits"]]
    assert "torch.bfloat16" not in normed().text and "float16" in told(normed())[1]
    in_eval = normed(mode="eval")
    assert [len(kernels(in_eval)), guards(in_eval)] == [1, ["_opweld_fits"]]
    assert "_kernels.track(" in normed().text and "_kernels.track(" not in in_eval.text
    assert num_lines(in_eval) < num_lines(normed())
    assert kernels(in_eval) == [row.name for row in in_eval.fused if not row.variant]


def test_both_modes_are_less_than_two_files() -> None:
    both, parts = normed(mode="both"), [normed(), normed(mode="eval")]
    assert guards(both) == ["_opweld_fits", "_opweld_fits_eval"]
    assert len(kernels(both)) == sum(len(kernels(part)) for part in parts)
    more = num_lines(both) - num_lines(parts[0])
    assert 0 < more < num_own_lines(parts[1]) < num_lines(parts[1]) - 100
    assert {row.variant for row in both.plan_rows} == {"", "eval"}
    assert both.main_rows == parts[0].main_rows


@pytest.mark.parametrize("asked", [{"mode": "both"}, {"autocast": ("bfloat16", "float16")}])
def test_what_makes_no_difference_adds_no_line(asked: dict[str, Any]) -> None:
    assert made(Plain(), **asked).text == made(Plain()).text
    assert told(made(Plain()))[:2] == ((), ())


def test_autocast_adds_its_own_forward_and_kernels() -> None:
    one, two = normed(autocast=("bfloat16",)), normed(autocast=("bfloat16", "float16"))
    assert [guards(each) for each in (one, two)] == [["_opweld_fits"]] * 2
    assert [len(kernels(each)) for each in (normed(), one, two)] == [1, 2, 3]
    assert kernels(one)[0] == kernels(normed())[0]
    assert [name.rpartition("_")[2] for name in kernels(two)[1:]] == ["bfloat16", "float16"]
    assert [told(each)[1] for each in (one, two)] == [("float16",), ()]


def test_a_dtype_adds_its_own_guard_and_kernels() -> None:
    found = normed(dtype=("float64",))
    assert guards(found) == ["_opweld_fits", "_opweld_fits_in_float64"]
    assert [len(kernels(found)), kernels(found)[0]] == [2, kernels(normed())[0]]
    assert told(found)[2] == ("float16", "bfloat16")
    assert {row.variant for row in found.plan_rows} == {"", "float64"}


def test_what_was_asked_for_in_vain_is_not_advised() -> None:
    class Assigns(nn.Module):
        def forward(self, x):
            if self.training:
                self.last = x
            return torch.exp(x) * 2

    found = made(Assigns(), mode="both")
    assert told(found)[0] == ()
    assert any(row.variant == "training" and "assigns to" in row.reason for row in found.plan_rows)
    assert told(made(Assigns(), mode="eval"))[0] == ("training",)


def test_a_file_without_kernels_tells_nothing() -> None:
    found = normed(exclude=frozenset(row.name for row in normed().fused))
    assert not found.fused and "_teller" not in found.text
