"""How much a judgement takes: on inputs of which size, and how often.

Every check is made at either level. Beside the main one they run on as many rows as the level
allows, since each of them sends its inputs and its results from process to process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """`max_elems` counts inputs and outputs of a check beside the main one, `max_flops` the
    operations of its products, by kind of device; `num_repeats` bounds the equal calls, whose
    number is drawn, and `num_batches` is how many triples of batch sizes are.

    `max_float64` is how many elements of inputs and outputs are compared with the float64 run
    where its rows do not depend on each other and all others are as near eager's as
    `torch.testing.assert_close` wants them; None compares all. Training is on inputs of at
    most `training_elems`, by kind of device, and `training_s` is what it may take from all seeds.
    """

    max_elems: Mapping[str, int]
    max_flops: Mapping[str, int]
    num_repeats: tuple[int, int]
    num_batches: int
    max_float64: int | None
    training_elems: Mapping[str, int]
    training_s: float


DEFAULT = Level(
    max_elems={"cpu": 2**18, "cuda": 2**21},
    max_flops={"cpu": 2**30, "cuda": 2**41},
    num_repeats=(8, 13),
    num_batches=1,
    max_float64=2**24,
    training_elems={"cpu": 2**14, "cuda": 2**18},
    training_s=60.0,
)
THOROUGH = Level(
    max_elems={"cpu": 2**21, "cuda": 2**23},
    max_flops={"cpu": 2**32, "cuda": 2**43},
    num_repeats=(200, 220),
    num_batches=4,
    max_float64=None,
    training_elems={"cpu": 2**17, "cuda": 2**20},
    training_s=300.0,
)


def level_of(thorough: bool) -> Level:
    """The level that the settings ask for."""
    return THOROUGH if thorough else DEFAULT
