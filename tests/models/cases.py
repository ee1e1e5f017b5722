"""The table of models: how each is made and called, and the least that must be fused of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tests.models import elements, layers, structure
from torch import nn

Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A model that must be fused.

    `ops` is the least number of operations in its kernels, `kernels` how many kernels a call runs
    at most. `call` makes the arguments for a batch size. `batches` are sizes at which the kernels
    must run too. With `draws` a call takes random numbers; with `coarse` some intermediates have 16
    bits, though no result has.
    """

    model: Callable[[], nn.Module]
    call: Callable[[int], Call]
    ops: int
    kernels: int
    batches: tuple[int, ...] = (0, 1, 7)
    gradients: bool = True
    draws: bool = False
    coarse: bool = False
    slow: bool = False

    @property
    def name(self) -> str:
        return self.model.__name__


def _positional(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Any:
    """Normal tensors whose first axis is the batch."""

    def call(batch: int) -> Call:
        return tuple(torch.randn(batch, *shape).to(dtype) for shape in shapes), {}

    return call


def _named(make: Callable[[int], tuple[Any, ...]], **named: Callable[[int], Any]) -> Any:
    return lambda batch: (make(batch), {key: value(batch) for key, value in named.items()})


def _away_from_zero(batch: int, width: int) -> torch.Tensor:
    x = torch.randn(batch, width)
    return x + torch.copysign(torch.tensor(0.25), x)


def _rows(width: int) -> Callable[[int], torch.Tensor]:
    return lambda batch: torch.randn(batch, width)


BATCH = 48

CASES = (
    Case(layers.Perceptron, _positional((24,)), 5, 3, slow=True),
    Case(layers.GatedPair, _positional((32,)), 4, 2),
    Case(layers.GeluGate, _positional((20,)), 2, 1, slow=True),
    Case(layers.Residual, _positional((9, 32)), 10, 3, slow=True),
    Case(layers.ResidualStack, _positional((16,)), 12, 7, slow=True),
    Case(layers.NormByHand, _positional((40,)), 11, 3),
    Case(layers.ConvBlock, _positional((4, 6, 10)), 5, 1),
    Case(layers.SqueezeExcite, _positional((8, 5, 5)), 6, 3),
    Case(layers.Attention, _positional((8, 32)), 30, 5, slow=True),
    Case(layers.Embedded, lambda n: ((torch.randint(0, 50, (n, 16)),), {}), 4, 3, slow=True),
    Case(layers.RecurrentCell, _positional((16,)), 30, 6, slow=True),
    Case(layers.Rotary, _positional((6, 24)), 8, 2, batches=(1, 7), slow=True),
    Case(layers.Einsum, _positional((3, 8)), 3, 2),
    Case(
        layers.Loss,
        lambda n: ((torch.randn(n, 20), torch.rand(n, 20)), {}),
        10,
        2,
        batches=(1, 7),
    ),
    Case(elements.Activations, _positional((24,)), 45, 1),
    Case(elements.Functions, lambda n: ((_away_from_zero(n, 40),), {}), 45, 1, slow=True),
    Case(elements.Parts, _positional((33,), (33,)), 20, 1, slow=True),
    Case(elements.Clamps, _named(lambda n: (torch.randn(n, 24), torch.rand(24))), 7, 1, slow=True),
    Case(elements.Chain, _positional((64,)), 300, 4, slow=True),
    Case(elements.Wide, _positional((16,)), 58, 1, slow=True),
    Case(
        elements.Broadcasts,
        lambda n: ((torch.randn(n, 6, 10), torch.randn(10)), {}),
        5,
        2,
        slow=True,
    ),
    Case(
        elements.Integers,
        lambda n: (
            (
                torch.randint(0, 100, (n, 10)),
                torch.rand(n, 10) > 0.5,
                torch.randint(0, 255, (n, 3), dtype=torch.uint8),
            ),
            {},
        ),
        17,
        4,
        gradients=False,
    ),
    Case(elements.Casts, _positional((20,)), 16, 1, coarse=True, slow=True),
    Case(elements.TwoHalves, _positional((65,), (65,), dtype=torch.bfloat16), 8, 1, slow=True),
    Case(
        elements.Scalars,
        _named(lambda n: (torch.randn(n, 12), 0.75), bias=lambda n: 2),
        4,
        1,
        slow=True,
    ),
    Case(elements.Items, lambda n: ((torch.randn(n, 12), torch.tensor(0.25)), {}), 5, 1, slow=True),
    Case(elements.Zeros, lambda n: ((torch.randn(()), torch.randn(())), {}), 7, 1, batches=()),
    Case(elements.Views, _positional((5, 6)), 15, 7, slow=True),
    Case(elements.Patches, _positional((3, 4, 6)), 3, 1, slow=True),
    Case(elements.InPlace, _positional((6,)), 6, 2),
    Case(
        elements.MaskedWrite,
        lambda n: ((torch.randn(n, 12), torch.rand(n, 12) > 0.5), {}),
        3,
        1,
        slow=True,
    ),
    Case(elements.Positions, _positional((7,)), 9, 3, slow=True),
    Case(elements.Doubles, _positional((31,), (31,), dtype=torch.float64), 8, 1),
    Case(
        structure.Dictionary,
        _named(
            lambda n: ({"a": torch.randn(n, 4), "rest": [torch.randn(n, 4)]},),
            options=lambda n: {"scale": 0.5},
        ),
        6,
        1,
    ),
    Case(
        structure.Keywords, _named(lambda n: (torch.randn(n, 6),), gate=_rows(6)), 2, 1, slow=True
    ),
    Case(
        structure.Many,
        _named(lambda n: tuple(torch.randn(n, 6) for _ in range(3)), gain=_rows(6)),
        6,
        1,
        batches=(),
    ),
    Case(structure.GivesBack, _positional((12,)), 2, 1, slow=True),
    Case(structure.Constant, _positional((4,)), 1, 1),
    Case(structure.Twice, _positional((4,)), 2, 2, slow=True),
    Case(structure.SizeBranch, _positional((4,)), 2, 1, batches=(7,)),
    Case(structure.SizeNumber, _positional((4,)), 2, 1, batches=(), slow=True),
    Case(structure.Normalised, _positional((16,)), 2, 1),
    Case(structure.ReadsMode, _positional((8,)), 4, 1, slow=True),
    Case(structure.TiedBranch, _positional((16,)), 3, 3, slow=True),
    Case(structure.Draws, _positional((16,)), 5, 3, draws=True),
    Case(structure.PartlyTrained, _positional((8,)), 5, 1),
    Case(structure.StopsGradient, _positional((8,)), 5, 2),
    Case(structure.NoGradRegion, _positional((8,)), 3, 2, slow=True),
    Case(structure.MixedRegions, _positional((8,)), 5, 8, coarse=True, slow=True),
    Case(structure.InferenceRegion, _positional((8,)), 2, 1, gradients=False, slow=True),
    Case(structure.FrozenTarget, _positional((8,)), 4, 3, slow=True),
    Case(structure.OwnGradient, _positional((8,)), 6, 1, slow=True),
    Case(structure.Parametrized, _positional((8,)), 6, 8, slow=True),
    Case(structure.Named, _positional((8,)), 3, 2, slow=True),
    Case(structure.NamedResult, _positional((8,)), 3, 1, slow=True),
    Case(structure.RecordResult, _positional((8,)), 4, 1),
    Case(structure.Complex, _positional((16,)), 8, 3, batches=(1, 7)),
)
