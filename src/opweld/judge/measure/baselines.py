"""What ModelNew is timed beside: eager, torch.compile, and the original as a CUDA graph."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from opweld.judge.load import ORIGINAL, Call, brief
from opweld.judge.measure.blocks import LocalTimed, Timed, compact, rolled
from opweld.judge.measure.clock import Action, Clock
from opweld.judge.values import ALL_BASELINES, Settings

NAMES = {
    "eager": "eager",
    "compile": "torch.compile",
    "autotune": "torch.compile in mode max-autotune",
    "graph": "a CUDA graph of the original",
}
# What making one baseline may take of the time that is left.
_SHARE_OF_TIME = 0.25
_NUM_CAPTURE_WARM_UPS = 3
_AGAIN_S = 1.0

Phase = Callable[[str, str], None]


class TookTooLong(Exception):
    """A step was interrupted at the end of its time."""


def chosen(settings: Settings, device: torch.device) -> tuple[str, ...]:
    """The baselines that are asked for and that the device has."""
    return tuple(
        name
        for name in ALL_BASELINES
        if name in settings.baselines and (name != "graph" or device.type == "cuda")
    )


def baselines(
    model: nn.Module, call: Call, clock: Clock, names: Iterable[str], phase: Phase, left_s: float
) -> tuple[dict[str, Timed], list[str]]:
    """The sides of these names, and a note on each that cannot be made.

    `call` serves for compiling and capturing only. None may take more than a quarter of `left_s`.
    """
    makers: dict[str, Callable[[], LocalTimed]] = {
        "eager": lambda: LocalTimed(model, clock),
        "compile": lambda: _compiled(model, call, clock, None),
        "autotune": lambda: _compiled(model, call, clock, "max-autotune"),
        "graph": lambda: _replayed(model, call, clock),
    }
    if "torch._dynamo" in sys.modules:  # else there is nothing, and it would be seconds to import
        torch.compiler.reset()
    sides: dict[str, Timed] = {}
    notes: list[str] = []
    for name in names:
        phase(ORIGINAL if name == "eager" else "torch.compile", f"making {NAMES[name]}")
        try:
            with deadline(_SHARE_OF_TIME * left_s):
                sides[name] = makers[name]()
        except Exception as error:
            notes.append(f"{NAMES[name]} failed: {brief(error)}")
    return sides, notes


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises `TookTooLong` inside when the time is over; only a main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread() or seconds == float("inf"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"not done within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    # again and again, for what is interrupted may catch it as a failure of its own
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _compiled(model: nn.Module, call: Call, clock: Clock, mode: str | None) -> LocalTimed:
    """Compiled; the first calls, which do that, happen here, without gradients like the rest."""
    compiled = torch.compile(model, mode=mode) if mode else torch.compile(model)
    with torch.no_grad():
        for _ in range(2):
            given = rolled(call, 0)
            compiled(*given.args, **given.kwargs)
    return LocalTimed(compiled, clock)


def _replayed(model: nn.Module, call: Call, clock: Clock) -> LocalTimed:
    """One capture of the original; inputs are copied to its memory before the clock starts."""
    static = rolled(call, 0)
    device = static.tensors()[0].device
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(_NUM_CAPTURE_WARM_UPS):
            model(*static.args, **static.kwargs)
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        outputs = model(*static.args, **static.kwargs)

    def ready(given: Call) -> Action:
        for target, source in zip(static.tensors(), given.tensors(), strict=True):
            compact(target).copy_(compact(source))
        return replay

    def replay() -> Any:
        graph.replay()
        return outputs

    return LocalTimed(model, clock, ready)
