"""What a file grows by: nothing for more blocks of a kind, little for another type or machine."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from benchmarks.emitted_lines import parts_of
from tests.text.emitting import compiled, compiled_in_mode, cpp_lines


def today(reason: str) -> pytest.MarkDecorator:
    """What fails so far; a strict mark goes once the test passes."""
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)


CONVOLUTIONS = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class Model(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.{container}(Block(16) for _ in range(depth))

    def forward(self, x):
        {run}


def get_inputs():
    return [torch.randn(2, 16, 8, 8)]


def get_init_inputs():
    return [{depth}]
"""
PERCEPTRONS = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.contract = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.contract(torch.tanh(self.expand(self.norm(x))))


class Model(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.{container}(Block(32) for _ in range(depth))

    def forward(self, x):
        {run}


def get_inputs():
    return [torch.randn(6, 32)]


def get_init_inputs():
    return [{depth}]
"""
RUNS = {
    "Sequential": "return self.blocks(x)",
    "ModuleList": "for block in self.blocks: x = block(x)\n        return x",
}
BLOCKS = {"convolutions": CONVOLUTIONS, "perceptrons": PERCEPTRONS}


def of_depth(blocks: str, container: str, depth: int) -> str:
    text = BLOCKS[blocks].format(container=container, run=RUNS[container], depth=depth)
    # A Sequential takes its items one by one.
    return text.replace("nn.Sequential(Block", "nn.Sequential(*(Block").replace(
        "range(depth))\n", "range(depth)))\n" if container == "Sequential" else "range(depth))\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("container", RUNS)
@pytest.mark.parametrize("blocks", BLOCKS)
def test_twice_as_many_equal_blocks_add_no_line_of_kernels(
    blocks: str, container: str, tmp_path: Path
) -> None:
    few, many = (compiled(tmp_path, of_depth(blocks, container, n)).text for n in (2, 4))
    assert cpp_lines(few) > 0
    assert cpp_lines(many) == cpp_lines(few)


@pytest.mark.slow
@pytest.mark.parametrize("container", RUNS)
@pytest.mark.parametrize("blocks", BLOCKS)
def test_twice_as_many_equal_blocks_add_no_line(
    blocks: str, container: str, tmp_path: Path
) -> None:
    """From four on: the first one reads the forward's own argument, so its kernels may differ."""
    few, many, more = (
        parts_of(compiled(tmp_path, of_depth(blocks, container, n)).text) for n in (4, 8, 16)
    )
    assert few == many == more


ONE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, {parameters}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
FLOAT = "torch.randn(6, 64)"
# Of other sizes: work on equal sizes would share a kernel's loop.
OTHER_SIZE = "torch.randn(10, 48)"
OTHER_TYPE = "torch.randn(10, 48).bfloat16()"
WORK = {
    "pointwise": "torch.tanh({x} * 0.5) * {x}",
    "softmax": "torch.softmax({x}, dim=-1)",
    "sum": "({x} * {x}).sum(dim=-1)",
}


def of_types(work: str, *inputs: str) -> str:
    """The same work on each of the inputs."""
    names = ("x", "y")[: len(inputs)]
    results = ", ".join(WORK[work].format(x=name) for name in names)
    return ONE.format(parameters=", ".join(names), result=results, inputs=", ".join(inputs))


@pytest.mark.parametrize("work", WORK)
def test_a_second_architecture_changes_only_the_head(work: str, tmp_path: Path) -> None:
    """These kernels have no instruction that one of the two lacks."""
    source = of_types(work, FLOAT)
    texts = [compiled(tmp_path, source, target).text for target in ("sm_80", "sm_90a")]
    changed = [line for line in difflib.ndiff(*(t.splitlines() for t in texts)) if line[0] in "+-"]
    assert [line[2:] for line in changed] == [
        f'"""ModelNew for model.py, by opweld {version} for {target}.'
        for version, target in zip(versions(texts), ("sm_80", "sm_90a"), strict=True)
    ]


def versions(texts: list[str]) -> list[str]:
    return [text.partition(" by opweld ")[2].split(" ", 1)[0] for text in texts]


# A C entry and what chooses it; an operator has at most five lines of host code.
INSTANCE_LINES, OPERATOR_LINES = 3, 5


@today("every group has a body of its own")
@pytest.mark.parametrize("work", WORK)
def test_a_second_type_adds_an_instance_and_no_body(work: str, tmp_path: Path) -> None:
    one = parts_of(compiled(tmp_path, of_types(work, FLOAT)).text)
    two = parts_of(compiled(tmp_path, of_types(work, FLOAT, OTHER_TYPE)).text)
    assert two["kernels"] - one["kernels"] <= INSTANCE_LINES
    assert two["host"] - one["host"] <= OPERATOR_LINES


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(
            work, marks=[] if work == "pointwise" else [today("row lengths are in the text")]
        )
        for work in WORK
    ],
)
def test_a_second_size_adds_no_line_of_kernels(work: str, tmp_path: Path) -> None:
    one = compiled(tmp_path, of_types(work, FLOAT)).text
    two = compiled(tmp_path, of_types(work, FLOAT, OTHER_SIZE)).text
    assert cpp_lines(two) == cpp_lines(one)


NORM = CONVOLUTIONS.format(container="ModuleList", run=RUNS["ModuleList"], depth=1)


PERCEPTRON = PERCEPTRONS.format(container="ModuleList", run=RUNS["ModuleList"], depth=1)


def test_types_that_no_call_has_are_not_there(tmp_path: Path) -> None:
    found = compiled(tmp_path, PERCEPTRON)
    assert found.fused
    assert [row.variant for row in found.plan_rows if "16" in row.variant] == []


@pytest.mark.parametrize("training", [False, True])
def test_only_the_mode_of_the_module_is_there(training: bool, tmp_path: Path) -> None:
    found = compiled_in_mode(tmp_path, NORM, training)
    assert found.fused
    assert len({row.variant for row in found.plan_rows}) == 1
    assert ("_kernels.track(" in found.text) is training


def test_a_mode_that_nothing_reads_adds_nothing(tmp_path: Path) -> None:
    texts = [compiled_in_mode(tmp_path, PERCEPTRON, training).text for training in (False, True)]
    assert texts[0] == texts[1]
