"""Times steps of training, beside eager and torch.compile.

    python benchmarks/training.py                          all models below
    python benchmarks/training.py mlp_8192 gpt --batch 8
    python benchmarks/training.py layer_norm --no-compiled

For each model of benchmarks/models/: milliseconds of the forward with gradients, of forward and
backward, and of these with the step of AdamW (fused on a GPU), interleaved; on a GPU the most bytes
that a step has allocated; and how far the gradients of eager and of ModelNew are from those of a
float64 run, all of them together over their norm. A model that draws random numbers, as dropout
does, draws others in float64: it has no such errors, but how far the gradients of ModelNew are from
eager's after the same seed. The account goes to benchmarks/results/.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import device_name, keep, run_of_today, slug  # noqa: E402

from opweld.driver import compile_file  # noqa: E402
from opweld.inputs import cut_batch  # noqa: E402
from opweld.judge.load import Call  # noqa: E402
from opweld.judge.measure.clock import time_interleaved  # noqa: E402
from opweld.judge.measure.steps import (  # noqa: E402
    apart,
    differentiated,
    given_gradients,
    leaves_of,
    stepping,
)
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402

MODELS = ROOT / "benchmarks" / "models"
RESULTS = ROOT / "benchmarks" / "results"
NAMES = (
    "mlp_8192",
    "linear_1024x2048x2048",
    "gelu_2048x8192",
    "swish_clamp_tanh",
    "softmax",
    "layer_norm",
    "cross_entropy",
    "batch_norm_relu",
    "gpt",
    "vit_b",
    "resnet18",
    "host/mlp",
    "host/encoder_layer",
    "host/attention_block",
)
WAYS = ("eager", "compile", "opweld")
PHASES = ("forward", "step", "with_optimizer")


def main(
    models: Annotated[list[str] | None, typer.Argument(help="Models by name; all else.")] = None,
    batch: Annotated[int | None, typer.Option(help="What batches are cut to.")] = None,
    budget_s: Annotated[float, typer.Option(help="Seconds for each figure.")] = 1.0,
    compiled: Annotated[bool, typer.Option(help="Whether torch.compile is timed, too.")] = True,
    store: Annotated[Path | None, typer.Option(help="The JSON file of the account.")] = None,
) -> None:
    """Prints a line for each model, and keeps its figures."""
    path = store or RESULTS / f"training-{slug(device_name())}.json"
    run = run_of_today()
    account = {"suite": "training", **run, "batch": batch}
    with tempfile.TemporaryDirectory() as folder:
        for name in models or NAMES:
            result = {
                "name": name,
                **measured(MODELS / f"{name}.py", Path(folder), batch, budget_s, compiled),
            }
            print(text_of(result), flush=True)
            keep(path, account, run, result, NAMES)


def measured(
    path: Path, folder: Path, batch: int | None, budget_s: float, compiled: bool
) -> dict[str, Any]:
    """Times in ms, bytes and errors of one model."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    made = compile_file(path, Options(batch=batch, check=False, training=True))
    new_path = folder / f"{path.stem}_new.py"
    new_path.write_text(made.text, "utf-8")
    original, emitted = (import_file(each, each.stem) for each in (path, new_path))
    model, ours = (_made(kind, original, device) for kind in (original.Model, emitted.ModelNew))
    torch.manual_seed(1)
    inputs = [x.to(device) for x in cut_batch(tuple(original.get_inputs()), batch)]
    call = Call(tuple(inputs), {})
    sides: dict[str, Any] = {"eager": model}
    if compiled:
        sides["compile"] = torch.compile(copy.deepcopy(model))
    sides["opweld"] = ours
    errors = _errors(model, ours, call)
    found: dict[str, Any] = {"lines": made.text.count("\n"), **errors}
    for phase in PHASES:
        actions = {way: _action(phase, side, call, device) for way, side in sides.items()}
        timed = time_interleaved(actions, device, budget_s * len(actions))
        found |= {f"{way}_{phase}_ms": samples.median for way, samples in timed.items()}
        if phase == "step" and device.type == "cuda":
            found |= {f"{way}_bytes": _peak_bytes(action) for way, action in actions.items()}
    return found


def _made(kind: Any, original: ModuleType, device: torch.device) -> Any:
    torch.manual_seed(0)
    return kind(*original.get_init_inputs()).to(device)


def _action(phase: str, model: Any, call: Call, device: torch.device) -> Callable[[], Any]:
    if phase == "forward":
        return lambda: model(*call.args, **call.kwargs)
    step = stepping(model)(call)
    if phase == "step":
        return step
    parameters = [each for each in model.parameters() if each.requires_grad]
    if not parameters:
        return step
    optimizer = torch.optim.AdamW(parameters, lr=1e-6, fused=device.type == "cuda")
    outgoing = given_gradients(model(*call.args, **call.kwargs))

    def whole() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(differentiated(model(*call.args, **call.kwargs)), outgoing)
        optimizer.step()

    return whole


def _peak_bytes(action: Callable[[], Any]) -> int:
    """The most that was allocated during a step, beside what was there before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    action()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _errors(model: Any, ours: Any, call: Call) -> dict[str, float | str | None]:
    """Distances of all gradients from those of a float64 run, over their norm: None, with `note`,
    where that draws other random numbers.
    """
    if _draws_random(model, call):
        found = apart(_gradients(ours, call), _gradients(model, call))
        return {"eager_error": None, "opweld_error": None, "from_eager": found, "note": DRAWN}
    exact_call = call.map(lambda t: t.double() if t.is_floating_point() else t)
    sides = {"eager": (model, call), "opweld": (ours, call)}
    exact = copy.deepcopy(model).double()
    wanted = _gradients(exact, exact_call)
    return {
        f"{name}_error": apart(_gradients(side, given), wanted)
        for name, (side, given) in sides.items()
    }


DRAWN = "the model draws random numbers, and others in float64"


def _draws_random(model: Any, call: Call) -> bool:
    """Whether a forward moves a generator of torch's."""
    before = _generators()
    copy.deepcopy(model)(*call.args, **call.kwargs)
    return not all(map(torch.equal, before, _generators()))


def _generators() -> list[torch.Tensor]:
    on_device = [torch.cuda.get_rng_state()] if torch.cuda.is_available() else []
    return [torch.get_rng_state(), *on_device]


def _gradients(model: Any, call: Call) -> list[torch.Tensor]:
    """Of one step, from a state of running statistics that stays."""
    model = copy.deepcopy(model)
    torch.manual_seed(2)
    leaves_of(model, call)
    found: list[torch.Tensor] = stepping(model)(call)()
    return found


def text_of(result: dict[str, Any]) -> str:
    """The line of one model."""
    parts = []
    for phase in PHASES:
        times = [f"{result[key]:.4g}" for way in WAYS if (key := f"{way}_{phase}_ms") in result]
        parts.append(f"{phase} {' / '.join(times)}")
    errors = (
        f"{result['note']}, ours {result['from_eager']:.2g} from eager's"
        if "note" in result
        else f"errors {result['eager_error']:.2g}, ours {result['opweld_error']:.2g}"
    )
    return f"{result['name']}: {', '.join(parts)} ms; {errors}; {result['lines']} lines"


if __name__ == "__main__":
    typer.run(main)
