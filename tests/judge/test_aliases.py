"""Memory that is shared, by element; signatures that take the same calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from opweld.judge.values import to_plain
from opweld.judge.verify.aliases import alias_clause, alias_map, share_memory, stride_note
from opweld.judge.verify.signature import incompatible, parameters_of, read_parameters

BASE = torch.zeros(4, 6)


@pytest.mark.parametrize(
    ("left", "right", "shared"),
    [
        (BASE, BASE.clone(), False),
        (BASE, BASE[1], True),
        (BASE[:2], BASE[2:], False),
        (BASE[:, :3], BASE[:, 3:], False),  # interleaved, no element in common
        (BASE[:, :3], BASE[:, 2:], True),
        (BASE.t(), BASE[0, :1], True),
        (BASE[:, ::2], BASE[:, 1::2], False),
        (BASE[:, ::2], BASE.view(torch.int32)[:, 2], True),
        (BASE[0, :1].expand(4, 6), BASE[0, 1:], False),
        (BASE[:0], BASE, False),
    ],
)
def test_memory_is_shared_where_an_element_is(
    left: torch.Tensor, right: torch.Tensor, shared: bool
) -> None:
    assert share_memory(left, right) is shared
    assert share_memory(right, left) is shared


def test_outputs_are_held_against_what_is_held_and_earlier_outputs() -> None:
    x, y = torch.zeros(3, 4), torch.zeros(3, 4)
    outputs = {"output[0]": y, "output[1]": x[1], "output[2]": y[:, :1], "output[3]": 2.5}
    found = alias_map(outputs, {"input 0": x, "state fc.weight": torch.zeros(3)})
    assert found == (
        "output[1] shares memory with input 0",
        "output[2] shares memory with output[0]",
    )
    assert alias_clause(found, found) is None
    assert alias_clause(found, found[1:]) == (
        "ModelNew's output[1] shares memory with input 0, and the original's does not"
    )
    assert alias_clause((), found) == (
        "the original's output[1] shares memory with input 0, and ModelNew's does not"
    )


def test_other_strides_are_a_note() -> None:
    assert stride_note(("output",), ((4, 1),), ((1, 3),)) == (
        "output has strides (4, 1) instead of (1, 3)"
    )
    assert stride_note(("output",), ((4, 1),), ((4, 1),)) == ""


def original(x, mask=None, *, scale: float = 1.5):  # type: ignore[no-untyped-def]
    return x, mask, scale


SIGNATURES: dict[str, tuple[Callable[..., object], str | None]] = {
    "the same": (lambda x, mask=None, *, scale=1.5: 0, None),
    "one more with a default": (lambda x, mask=None, flag=0, *, scale=1.5: 0, None),
    "anything": (lambda *args, **kwargs: 0, None),
    "keyword made positional": (lambda x, mask=None, scale=1.5: 0, None),
    "another name": (
        lambda y, mask=None, *, scale=1.5: 0,
        "calls its parameter y where the original's is x",
    ),
    "one fewer": (lambda x, *, scale=1.5: 0, "lacks the parameter mask"),
    "no default": (
        lambda x, mask, *, scale=1.5: 0,
        "has no default for mask, and the original's has None",
    ),
    "another default": (
        lambda x, mask=None, *, scale=1.0: 0,
        "has the default 1.0 for scale instead of 1.5",
    ),
    "no keyword": (lambda x, mask=None: 0, "takes no argument named scale"),
    "one more without": (
        lambda x, mask=None, *, scale=1.5, extra: 0,
        "asks for extra, which the original's does not",
    ),
}


@pytest.mark.parametrize("case", SIGNATURES)
def test_every_call_of_the_original_is_taken(case: str) -> None:
    function, clause = SIGNATURES[case]
    assert incompatible(parameters_of(function), parameters_of(original)) == clause


def test_a_module_without_a_constructor_takes_no_arguments() -> None:
    class Plain(nn.Module):
        pass

    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()

    assert parameters_of(Plain) == parameters_of(Keeps) == ()


def test_the_instance_may_have_any_name() -> None:
    class Other(nn.Module):
        def forward(this, x, mask=None, *, scale: float = 1.5):  # type: ignore[no-untyped-def]
            return x, mask, scale

    assert parameters_of(Other().forward) == parameters_of(original)


def test_signatures_survive_the_wire() -> None:
    found = parameters_of(original)
    assert read_parameters(to_plain(found)) == found
    assert read_parameters(None) is None and incompatible(None, found) is None
    with pytest.raises((TypeError, KeyError)):
        read_parameters([{"name": "x"}])
