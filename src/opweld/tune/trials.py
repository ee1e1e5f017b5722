"""Runs the kernels of emitted files against each other, on the arguments that a model gave them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch

from opweld.errors import UnsupportedTarget
from opweld.judge.load import Call, build_new, make_inputs
from opweld.judge.measure.clock import time_interleaved
from opweld.judge.measure.kernels import Launch, record
from opweld.judge.values import Samples
from opweld.target import Target, choose_target

BUDGET_S = 0.25
# The second run is of two schedules alone, and its figures are kept.
AGAIN_BUDGET_S = 1.0

Action = Callable[[], Any]
Actions = Mapping[str, Action]


def device_for(target: Target) -> torch.device:
    """The device whose figures are the target's.

    Raises:
        UnsupportedTarget: this machine has none.
    """
    if target.language != "cuda":
        return torch.device("cpu")
    capability = torch.cuda.is_available() and torch.cuda.get_device_capability()
    own = choose_target("auto", capability, torch.cuda.get_device_name()) if capability else None
    if own and own.measured_as == target.measured_as:
        return torch.device("cuda", torch.cuda.current_device())
    raise UnsupportedTarget(
        f"this machine has no device on which schedules for {target.name} can be measured",
        next_step="measure on such a machine, or use --target auto",
    )


class TimeThem(Protocol):
    """Samples of each action, interleaved, within `budget_s` seconds for each of them."""

    def __call__(self, actions: Actions, budget_s: float, /) -> dict[str, Samples]: ...


class Stopwatch:
    """The judge's clock on one device, with an end: what is timed shares out the time that is left.

    `num_classes` are still to be timed when it is made; `next_class` counts them down.
    """

    def __init__(
        self,
        device: torch.device,
        until_s: float,
        num_classes: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._device, self._until_s, self._left, self._now = device, until_s, num_classes, now

    def __call__(self, actions: Actions, budget_s: float, /) -> dict[str, Samples]:
        # a class is timed up to three times: its products alone, all its schedules, two again
        limit_s = max(0.0, self._until_s - self._now()) / (3 * max(1, self._left))
        with torch.no_grad():
            return time_interleaved(actions, self._device, budget_s, limit_s=limit_s)

    def next_class(self) -> None:
        self._left -= 1


@dataclass(frozen=True, slots=True)
class Stage:
    """A built file on its device: its module, a ModelNew of it, and what one call launches."""

    module: ModuleType
    model: torch.nn.Module
    call: Call
    launches: tuple[Launch, ...]

    def launches_of(self, groups: tuple[str, ...]) -> tuple[Launch, ...]:
        """Those of the groups' kernels; none where one of them did not run."""
        found = [[x for x in self.launches if x.name in (g, f"{g}_into")] for g in groups]
        return tuple(launch for each in found for launch in each) if all(found) else ()

    def forward(self) -> Any:
        return self.model(*self.call.args, **self.call.kwargs)


def stage(module: ModuleType, path: Path, seed: int, device: torch.device, batch: int | None,
          like: Stage | None = None) -> Stage:  # fmt: skip
    """Builds ModelNew and calls it once; with the weights and inputs of `like`, which it shares."""
    model = build_new(module, module, path, seed, device)
    if like is not None:
        model.load_state_dict(like.model.state_dict(), strict=False, assign=True)
    call = like.call if like else make_inputs(module, path, seed, device, batch)
    return Stage(module, model, call, record(model, call))


def replay(launches: tuple[Launch, ...], module: ModuleType) -> Action:
    """The same launches by the kernels of another file, whose groups have the same names."""
    ops = [module.ModelNew._opweld.op(launch.name) for launch in launches]
    calls = [(op, x.args, x.kwargs) for op, x in zip(ops, launches, strict=True)]

    def run() -> None:
        for op, args, kwargs in calls:
            op(*args, **kwargs)

    return run


def copy_of(launches: tuple[Launch, ...], device: torch.device) -> Action:
    """A copy that reads and writes as many bytes as the launches touch."""
    num_bytes = sum(launch.touched_bytes() for launch in launches)
    source = torch.zeros(max(1, num_bytes // 2), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def without(rest_ms: float, samples: Mapping[str, Samples]) -> dict[str, Samples]:
    """The samples less what all of them do beside."""
    return {
        name: Samples(s.median - rest_ms, s.p10 - rest_ms, s.p90 - rest_ms, s.n)
        for name, s in samples.items()
    }
