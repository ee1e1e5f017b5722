"""Times models whose mathematics opweld changes, beside eager and torch.compile.

    python benchmarks/algebra.py                            all of examples/algebra/
    python benchmarks/algebra.py linear_sum --algebra finite      else what an example asks for
    python benchmarks/algebra.py --divide 16                sizes by 16, for a machine without a GPU

For each model: milliseconds of eager, torch.compile and ModelNew, interleaved; two floors, of the
original and of the rewritten problem, from the speed of a copy and of a large product in this run;
what was rewritten; and the root mean square errors of eager and of ModelNew against float64. The
account goes to benchmarks/results/.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import device_name, keep, run_of_today, slug  # noqa: E402

from opweld.compiled import Compiled  # noqa: E402
from opweld.driver import compile_file  # noqa: E402
from opweld.judge.load import Call  # noqa: E402
from opweld.judge.measure import limits  # noqa: E402
from opweld.judge.measure.clock import time_interleaved  # noqa: E402
from opweld.judge.tree import tensors  # noqa: E402
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402

EXAMPLES = ROOT / "examples" / "algebra"
RESULTS = ROOT / "benchmarks" / "results"
# The line of an example that has its sizes.
SIZES = re.compile(r"^[A-Z]+(?:, [A-Z]+)+ = (\d+(?:, \d+)+)$", re.MULTILINE)
_LEAST = 8


def main(
    models: Annotated[list[str] | None, typer.Argument(help="Examples by name; all else.")] = None,
    algebra: Annotated[
        str | None, typer.Option(help="exact, finite or off; else the example's.")
    ] = None,
    divide: Annotated[int, typer.Option(help="What sizes are divided by.")] = 1,
    budget_s: Annotated[float, typer.Option(help="Seconds for each way.")] = 1.0,
    compiled: Annotated[bool, typer.Option(help="Whether torch.compile is timed, too.")] = True,
    store: Annotated[Path | None, typer.Option(help="The JSON file of the account.")] = None,
) -> None:
    """Prints a few lines for each model, and keeps its figures."""
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    path = store or RESULTS / f"algebra-{slug(device_name())}.json"
    run = run_of_today()
    account = {"suite": "algebra", **run, "algebra": algebra or "each its own", "divide": divide}
    with tempfile.TemporaryDirectory() as folder:
        for name in models or names:
            made = _written(name, divide, Path(folder))
            result = {"name": name, **_measured(made, algebra, budget_s, compiled)}
            print(text_of(result), flush=True)
            keep(path, account, run, result, names)


def with_sizes(text: str, divide: int) -> str:
    """An example whose sizes are divided."""

    def divided(match: re.Match[str]) -> str:
        numbers = [max(_LEAST, int(each) // divide) for each in match[1].split(", ")]
        return match[0].replace(match[1], ", ".join(map(str, numbers)))

    changed, count = SIZES.subn(divided if divide > 1 else lambda match: match[0], text)
    if count != 1:
        raise ValueError("an example has one line with its sizes")
    return changed


def _written(name: str, divide: int, folder: Path) -> Path:
    path = folder / f"{name}.py"
    path.write_text(with_sizes((EXAMPLES / f"{name}.py").read_text("utf-8"), divide), "utf-8")
    return path


@torch.no_grad()
def _measured(path: Path, algebra: str | None, budget_s: float, compiled: bool) -> dict[str, Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    original = import_file(path, path.stem)
    asked = algebra or str(getattr(original, "ALGEBRA", "exact"))
    made = compile_file(path, Options(algebra=asked, mode="eval", check=False))
    new_path = path.with_name(f"{path.stem}_new.py")
    new_path.write_text(made.text, "utf-8")
    emitted = import_file(new_path, new_path.stem)
    model, ours = (_model(m, name, device) for m, name in ((original, "Model"), (emitted, NEW)))
    torch.manual_seed(1)
    inputs = [x.to(device) for x in original.get_inputs()]
    ways: dict[str, Callable[[], Any]] = {"eager": partial(model, *inputs)}
    if compiled:
        ways["compile"] = partial(torch.compile(model), *inputs)
    ways["opweld"] = partial(ours, *inputs)
    errors = _errors(model, ours, inputs)
    timed = time_interleaved(ways, device, budget_s)
    times = {f"{way}_ms": samples.median for way, samples in timed.items()}
    floors = _floors(model, inputs, made, device)
    return {"algebra": asked, **times, **floors, **errors, **_rewrites(made)}


NEW = "ModelNew"


def _model(module: ModuleType, name: str, device: torch.device) -> torch.nn.Module:
    torch.manual_seed(0)
    model: torch.nn.Module = getattr(module, name)(*module.get_init_inputs())
    return model.to(device).eval()


def _errors(model: Any, ours: Any, inputs: list[torch.Tensor]) -> dict[str, float]:
    """Root mean squares of the differences to a float64 run, by its own root mean square."""
    results = [tensors(each(*inputs))[0].double() for each in (model, ours)]
    exact = tensors(model.double()(*(x.double() for x in inputs)))[0]
    model.float()
    scale = exact.square().mean().sqrt()
    eager, found = (float((each - exact).square().mean().sqrt() / scale) for each in results)
    return {"eager_error": eager, "opweld_error": found}


def _floors(
    model: torch.nn.Module, inputs: list[torch.Tensor], made: Compiled, device: torch.device
) -> dict[str, float]:
    """The least ms of the original's operations and bytes, and of those that are left: each at the
    speed of a copy and of a product in this run.
    """
    call = Call(tuple(inputs), {})
    outputs, flops = limits.run_counted(model, call)
    copies, num_bytes = limits.copy_samples(device)
    gbps = num_bytes / copies.median / 1e6
    tflops = limits.product_tflops(device, torch.float32)
    moved = limits.moved_bytes(model, call, outputs)
    whole, _ = limits.limit(moved, flops, gbps, tflops)
    rewritten, _ = limits.limit(moved, max(flops - made.saved_flops, 0), gbps, tflops)
    return {"floor_ms": whole, "rewritten_floor_ms": rewritten}


def _rewrites(made: Compiled) -> dict[str, Any]:
    found = {"rules": [name for name, _ in made.rules], "rewritten": list(made.rewritten)}
    return {**found, "saved_flops": made.saved_flops}


def text_of(result: dict[str, Any]) -> str:
    """The lines of one model."""
    times = [f"{way} {result[f'{way}_ms']:.4g}" for way in WAYS if f"{way}_ms" in result]
    floors = f"floor {result['floor_ms']:.4g}, rewritten {result['rewritten_floor_ms']:.4g}"
    errors = f"errors {result['eager_error']:.2g}, ours {result['opweld_error']:.2g}"
    told = [f"    {sentence}" for sentence in result["rewritten"]]
    name = f"{result['name']} ({result['algebra']})"
    return "\n".join([f"{name}: {', '.join(times)} ms; {floors} ms; {errors}", *told])


WAYS = ("eager", "compile", "opweld")


if __name__ == "__main__":
    typer.run(main)
