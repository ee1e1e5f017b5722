"""The support at the end of emitted files: short, last, and the same in all of them."""

from __future__ import annotations

import ast
from importlib import resources
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.behaviour.emitted import emitted_text, texts_in
from tests.behaviour.models import SOURCES
from torch._prims_common import suggest_memory_format

from opweld.emission import piece
from opweld.emission.support import MARKER, call_text, filled, optional_texts, support_text

MAX_LINES = 118
# The aim is 300.
MAX_FILE_LINES = 626
# What a reader of gelu's file has to read: the original and all that was made of it.
MAX_OWN_LINES = 135
TARGETS = ("cpu", "sm_90a")


def parts(name: str, target: str) -> tuple[str, str, str]:
    """What a file says of its own model, the support, and the call at the end."""
    own, support = emitted_text(name, target).split(MARKER)
    support, call = support.split("\n_fuse(")
    return own, support, call


@pytest.mark.parametrize("language", ["cuda", "c++"])
def test_it_is_short(language: str) -> None:
    lines = f"{MARKER}\n{support_text(language)}".splitlines()
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("target", TARGETS)
def test_it_is_the_same_in_every_file(target: str) -> None:
    fixed = support_text("cuda" if target != "cpu" else "c++")
    for name in SOURCES:
        own, support, call = parts(name, target)
        shared, found, rest = support.partition(fixed)
        assert found and set(texts_in(shared)) <= {"_DEVICE", "_HOST"}
        assert rest.strip() == "\n\n\n".join(optional_texts(f"{own}\n{call}"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(SOURCES))
def test_what_is_the_models_own_stands_before_it(name: str, target: str) -> None:
    own, support, _ = parts(name, target)
    assert "class ModelNew" in own and "_reference(" in own
    assert name not in support and "k1_" not in support


def test_only_what_is_used_of_the_optional_support_is_there() -> None:
    texts = {name: "\n".join(parts(name, "cpu")[1:]) for name in SOURCES}
    assert "def _facts(" in texts["linear"] and "def _facts(" not in texts["gelu"]
    assert "def _reusing(" in texts["linear"] and "def _reusing(" not in texts["gelu"]
    for text in texts.values():
        assert "def _side_by_side(" not in text and "def _track(" not in text
    assert "def _asks(" in texts["linear"] and "def _asks(" not in texts["gelu"]
    assert "def _several(" in texts["branches"] and "def _several(" not in texts["gelu"]
    assert "def _paths(" not in texts["linear"]


def test_the_call_is_python_and_short_lines() -> None:
    kernels = {f"k{i}": ("_fused", [f'op("k{i}")', "_" + "long_" * 12]) for i in range(3)}
    held = {"unchanged": "_unchanged", "objects": "(torch.nn.Linear,)"}
    text = call_text("model", ["first" * 9, "second" * 9], held, kernels)
    ast.parse(text)
    assert "each=_side_by_side" in text and max(map(len, text.splitlines())) <= 100


def test_the_fixed_host_code_of_pointwise_kernels_is_short() -> None:
    text = (resources.files("opweld.device") / "host" / "tensor_view.h").read_text("utf-8")
    assert len(text.splitlines()) <= 80
    own, support, _ = parts("gelu", "sm_90a")
    assert texts_in(support)["_HOST"].startswith(text.rstrip("\n"))
    lines = [line for line in texts_in(own)["_MAIN"].splitlines() if "k1_" in line]
    assert 3 <= len(lines) <= 5


def test_a_file_of_one_pointwise_kernel_is_short() -> None:
    own, support, call = parts("gelu", "sm_90a")
    assert len(own.splitlines()) <= MAX_OWN_LINES
    assert len("".join([own, support, call]).splitlines()) <= MAX_FILE_LINES


def test_calls_fill_their_lines_and_break_nothing_inside() -> None:
    """What is in inner parentheses stays in a line, and a long item begins with one."""
    sizes = ", ".join(f"x{n}.new_empty((x{n}.shape[0], 64, {n}))" for n in range(4))
    items = [
        'op("k1")',
        "_reference",
        f"lambda x0, x1, x2, x3: ({sizes})",
        "reached=(None, (0, 1))",
    ]
    first, *lines = filled("k1=f(", items, ")", 4).split("\n")
    assert first == "k1=f(" and lines[0] == '        op("k1"), _reference,'
    assert max(map(len, lines)) <= 98 and len(lines) == 4
    assert all(f"x{n}.new_empty((x{n}.shape[0], 64, {n}))" in "\n".join(lines) for n in range(4))
    assert lines[-1].endswith("reached=(None, (0, 1)))")
    assert filled("k=f(", ["a", "b"], ")", 4) == "k=f(a, b)"


@settings(max_examples=300, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(0, 3)] * 4),
    strides=st.tuples(*[st.integers(0, 30)] * 4),
    packed=st.sampled_from([None, torch.contiguous_format, torch.channels_last]),
)
def test_the_quick_way_to_a_format_is_pytorchs(
    sizes: tuple[int, ...], strides: tuple[int, ...], packed: torch.memory_format | None
) -> None:
    names: dict[str, Any] = {"torch": torch}
    exec(piece("memory/channels_last"), names)
    x = torch.empty(400).as_strided(sizes, strides)
    if packed:  # not by `contiguous`, which leaves strides of axes of one as they are
        x = torch.empty(sizes, memory_format=packed)
    made = suggest_memory_format(x)
    assert names["_channels_last"](x) == (made is torch.channels_last)
