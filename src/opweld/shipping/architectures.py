"""What libraries are built for, as `--arch` names it: GPUs by sm_NN, processors by their level."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opweld.errors import UnsupportedTarget
from opweld.options import ARCHITECTURES

# What each level of x86-64 adds (the psABI's table), by the names in /proc/cpuinfo.
_ADDED = {
    "x86-64": (),
    "x86-64-v2": ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"),
    "x86-64-v3": ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}
LEVELS = tuple(_ADDED)
# What servers of the last ten years have.
USUAL_LEVEL = "x86-64-v3"


@dataclass(frozen=True, slots=True)
class Architectures:
    """`names` are all GPUs' or one level of a processor, whose `cpu_flags` are needed."""

    names: tuple[str, ...]
    cpu_flags: tuple[str, ...] = ()

    @property
    def on_cuda(self) -> bool:
        return not self.cpu_flags and self.names[0] not in LEVELS

    @property
    def gencode(self) -> list[str]:
        """nvcc's arguments."""
        numbers = [name.removeprefix("sm_") for name in self.names]
        return [f"-gencode=arch=compute_{n},code=sm_{n}" for n in numbers]

    @property
    def capabilities(self) -> tuple[tuple[int, int, bool], ...]:
        """Major and minor number, and whether no other of the same major number runs it."""
        return tuple(_capability(name) for name in self.names)


def _capability(name: str) -> tuple[int, int, bool]:
    found = re.fullmatch(r"sm_(\d+)(\d)(a?)", name)
    assert found
    return int(found[1]), int(found[2]), bool(found[3])


def architectures(asked: str | None, target: str) -> Architectures:
    """Of `--arch`, a list with commas, for a file that was made for `target`.

    Raises:
        UnsupportedTarget: a name is unknown, or of the other kind of device.
    """
    names = tuple(name.strip() for name in asked.split(",")) if asked else (_default(target),)
    known = LEVELS if target == "cpu" else ARCHITECTURES
    for name in names:
        if name not in known:
            raise UnsupportedTarget(
                f"there is no architecture {name!r} for a file that was made for {target}",
                next_step=f"use {'one' if target == 'cpu' else 'some'} of {', '.join(known)}",
            )
    if target != "cpu":
        return Architectures(tuple(dict.fromkeys(names)))
    if len(names) > 1:
        raise UnsupportedTarget(
            "a library for a processor is of one level", next_step=f"name {names[0]} alone"
        )
    below = LEVELS[: LEVELS.index(names[0]) + 1]
    return Architectures(names, tuple(flag for level in below for flag in _ADDED[level]))


def _default(target: str) -> str:
    return USUAL_LEVEL if target == "cpu" else target
