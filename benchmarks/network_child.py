"""One network of network_speed.py, in a process of its own: prepared, and timed when told to.

    python benchmarks/network_child.py speed|host|convolutions|networks|steps ROW TARGET FOLDER

Tells what it is at through the file descriptor named by OPWELD_EVENTS, last "ready"; then waits for
the file FOLDER/go, so that nothing else runs while it is timed. Writes FOLDER/answer.json.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.networks import BY_NAME, Loaded, Row, loaded, synchronised  # noqa: E402
from benchmarks.profiled import flush_for, kernel_times  # noqa: E402

from opweld.driver import compile_module  # noqa: E402
from opweld.judge.measure.clock import rotated, summarise, time_interleaved  # noqa: E402
from opweld.judge.measure.steps import apart  # noqa: E402
from opweld.judge.numerics.compare import ErrorSums  # noqa: E402
from opweld.judge.numerics.effective import CONVOLUTIONS, Lowered  # noqa: E402
from opweld.judge.numerics.grade import grade  # noqa: E402
from opweld.judge.values import Samples  # noqa: E402
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402

EQUAL_RUNS = 20
BUDGET_S = 1.0
# Few enough calls that the device's queue never fills up and makes the host wait.
CALLS, ROUNDS = 5, 40
Way = Callable[[], Any]
# Eager PyTorch with weights and inputs in the layout that convolutions like best.
CHANNELS_LAST = "eager, channels last"
IN_BOTH_LAYOUTS = ("convolutions", "networks", "steps")
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True)
class Prepared:
    """The ways to run one network, built and called once in each state of gradients."""

    made: Loaded
    modules: Mapping[str, torch.nn.Module]
    device: str

    def inputs(self, name: str) -> tuple[Any, ...]:
        """What a way is called with, made before it is timed."""
        if name != CHANNELS_LAST:
            return self.made.inputs
        return tuple(x.to(memory_format=FORMATS[x.dim()]) for x in self.made.inputs)

    def forwards(self) -> dict[str, Way]:
        return {name: self._forward(name) for name in self.modules}

    def backwards(self) -> dict[str, Way]:
        return {name: self._backward(name) for name in self.modules}

    def _forward(self, name: str) -> Way:
        module, inputs = self.modules[name], self.inputs(name)
        return lambda: module(*inputs)

    def _backward(self, name: str) -> Way:
        module, inputs = self.modules[name], self.inputs(name)
        parameters = list(module.parameters())

        def run() -> Any:
            total = module(*inputs).float().sum()
            return torch.autograd.grad(total, parameters, allow_unused=True)

        return run


def main() -> None:
    kind, name, target, folder = sys.argv[1:]
    row = BY_NAME[name]
    trains = kind in ("host", "steps") or (kind == "speed" and row.training)
    options = Options(target=target, check=False, training=kind == "steps")
    prepared = prepare(row, options, Path(folder), trains, kind in IN_BOTH_LAYOUTS)
    tell("ready")
    while not Path(folder, "go").exists():
        time.sleep(0.05)
    figures = (host if kind == "host" else speed)(prepared, trains)
    if kind in ("convolutions", "networks") and prepared.device == "cuda":
        figures |= parts(prepared)
    if kind == "steps":
        figures["gradients"] = gradient_errors(prepared)
    Path(folder, "answer.json").write_text(json.dumps(figures), "utf-8")


def prepare(row: Row, options: Options, folder: Path, trains: bool, both_layouts: bool) -> Prepared:
    """Compiles, builds and calls; raises where the kernels were not built."""
    device = "cpu" if options.target == "cpu" else "cuda"
    tell("emit")
    made = loaded(row, device, row.gpu_batch if device == "cuda" else None)
    compiled = compile_module(made.module, made.inputs, {}, made.original, options)
    new = folder / f"{row.path.stem}_new.py"
    new.write_text(compiled.text, "utf-8")
    tell("build")
    file: Any = import_file(new, "emitted")
    given = () if row.convolution else file.get_init_inputs()
    ours = file.ModelNew(*given).train(row.training).to(device)
    ours.load_state_dict(made.module.state_dict())
    modules = {"eager": made.module, "compile": torch.compile(made.module), "opweld": ours}
    if both_layouts and made.inputs[0].dim() in FORMATS:
        layout = FORMATS[made.inputs[0].dim()]
        modules[CHANNELS_LAST] = copy.deepcopy(made.module).to(memory_format=layout)
    prepared = Prepared(made, modules, device)
    call_each(prepared, trains)
    return prepared


def call_each(prepared: Prepared, trains: bool) -> None:
    """Twice, for torch.compile may compile again where sizes were taken for others."""
    for name, forward in prepared.forwards().items():
        tell(name)
        for _ in range(2):
            with torch.no_grad():
                forward()
            if trains:
                prepared.backwards()[name]()
    synchronised(prepared.device)()
    if prepared.device == "cuda":
        torch.cuda.empty_cache()


def speed(prepared: Prepared, trains: bool) -> dict[str, Any]:
    """Milliseconds on the device, and whether what ran so fast is right; `ms_recorded` are those of
    forwards whose gradients PyTorch records, as it does where nobody turned that off."""
    device = torch.device(prepared.device)
    with torch.no_grad():
        figures = checked(prepared)
        times = time_interleaved(prepared.forwards(), device, BUDGET_S)
    recorded = time_interleaved(prepared.forwards(), device, BUDGET_S / 2)
    backward = time_interleaved(prepared.backwards(), device, BUDGET_S) if trains else {}
    spread = {name: [each.p10, each.p90] for name, each in times.items()}
    return {
        **figures,
        "ms": medians(times),
        "spread": spread,
        "ms_recorded": medians(recorded),
        "ms_backward": medians(backward),
    }


def parts(prepared: Prepared) -> dict[str, Any]:
    """Microseconds of the kernels of a forward, how many there are, and microseconds of the host:
    which of them the milliseconds of a forward are."""
    flush = flush_for(prepared.device)
    with torch.no_grad():
        ways = prepared.forwards()
        every = {name: kernel_times(way, flush) for name, way in ways.items()}
        host_us = medians(host_times(ways, synchronised(prepared.device)))
    return {
        "kernels_us": {name: sum(times.values()) for name, (times, _) in every.items()},
        "num_kernels": {name: sum(calls.values()) for name, (_, calls) in every.items()},
        "host_us": host_us,
    }


def gradient_errors(prepared: Prepared) -> dict[str, float]:
    """Distances of all gradients from those of a float64 run, over their norm."""
    made = prepared.made
    exact_inputs = tuple(x.double() if x.is_floating_point() else x for x in made.inputs)
    wide = replace(made, inputs=exact_inputs)
    exact = Prepared(wide, {"exact": copy.deepcopy(made.module).double()}, prepared.device)
    wanted = exact.backwards()["exact"]()
    return {name: apart(run(), wanted) for name, run in prepared.backwards().items()}


def checked(prepared: Prepared) -> dict[str, Any]:
    """The error against float64 beside eager's, equal calls that differ, whether kernels ran."""
    made, forwards = prepared.made, prepared.forwards()
    new, old = forwards["opweld"](), forwards["eager"]()
    wide = (x.double() if x.is_floating_point() else x for x in made.inputs)
    exact = copy.deepcopy(made.module).double()(*wide)
    allowed = permitted(old, exact, forwards["eager"])
    sums = ErrorSums(old.dtype)
    sums.add(new, allowed, exact)
    figures = sums.figures()
    unequal = sum(not torch.equal(forwards["opweld"](), new) for _ in range(EQUAL_RUNS))
    of_eager = sum(not torch.equal(forwards["eager"](), old) for _ in range(EQUAL_RUNS))
    with CountOurs() as count:
        forwards["opweld"]()
    return {
        "error": {
            "rms": figures.rms,
            "max": figures.max,
            "eager_rms": figures.eager_rms,
            "eager_max": figures.eager_max,
            "grade": grade(figures),
            "beside": "eager" if allowed is old else "TF32",
        },
        "runs": EQUAL_RUNS,
        "unequal_runs": unequal,
        "eager_unequal_runs": of_eager,
        "kernels_ran": count.ours,
    }


def permitted(old: torch.Tensor, exact: torch.Tensor, eager: Way) -> torch.Tensor:
    """Eager's result, or that of its convolutions' operands rounded to TF32 where torch's flag
    allows it and the error is larger: cuDNN computes small ones in float32 all the same.
    """
    if not (old.is_cuda and torch.backends.cudnn.allow_tf32):
        return old
    with Lowered(CONVOLUTIONS) as lowered:
        rounded = eager()
    of_old, of_rounded = ((each.double() - exact).square().sum() for each in (old, rounded))
    return rounded if lowered.acted and of_rounded > of_old else old


class CountOurs(TorchDispatchMode):
    """Counts the operators of emitted files."""

    def __init__(self) -> None:
        super().__init__()
        self.ours = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ours += str(func).startswith("opweld_")
        return func(*args, **(kwargs or {}))


def host(prepared: Prepared, trains: bool) -> dict[str, Any]:
    """Microseconds that the host takes for a forward; with gradients, for a backward too."""
    wait = synchronised(prepared.device)
    with torch.no_grad():
        figures = checked(prepared)
        no_grad = host_times(prepared.forwards(), wait)
    grad = host_times(prepared.backwards(), wait)
    spread = {
        kind: {name: [each.p10, each.p90] for name, each in times.items()}
        for kind, times in (("no_grad_us", no_grad), ("grad_us", grad))
    }
    return {**figures, "no_grad_us": medians(no_grad), "grad_us": medians(grad), "spread": spread}


def host_times(ways: Mapping[str, Way], wait: Callable[[], None]) -> dict[str, Samples]:
    """Samples of the microseconds until a call returns, interleaved; the device is idle before."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS):
        for name in rotated(list(ways), turn):
            wait()
            start = time.perf_counter()
            for _ in range(CALLS):
                ways[name]()
            times[name].append((time.perf_counter() - start) / CALLS * 1e6)
    return {name: summarise(each) for name, each in times.items()}


def medians(times: Mapping[str, Samples]) -> dict[str, float]:
    return {name: each.median for name, each in times.items()}


def tell(event: str) -> None:
    os.write(int(os.environ["OPWELD_EVENTS"]), f"{event}\n".encode())


if __name__ == "__main__":
    main()
