"""How long emitted files are, and how long making and building them takes, model by model.

    python benchmarks/text_and_time.py                     kernels for the CPU, and torch.compile
    python benchmarks/text_and_time.py --target sm_90a     for the H200; without one, nvcc alone
    python benchmarks/text_and_time.py --only 'ResNet|ViT' --limit-s 120
    python benchmarks/text_and_time.py --steps emit        lines and kernels, nothing is built

Each step of a model (emit, build, torch.compile's first call) is a child process with a time limit.
One that does not end, or fails, is recorded as such. Without a device for the target the emitted
file's texts are compiled to objects, nothing is linked, and torch.compile is left out. Lines and
kernels are the same at each run; seconds are of this machine, whose load average is kept with them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.networks import ROWS, Row, chosen  # noqa: E402
from benchmarks.record import device_name, keep, run_of_today, slug  # noqa: E402
from benchmarks.steps import runs_here  # noqa: E402

from opweld.process.child import run_child  # noqa: E402

SUITE = "text-and-time"


def main(
    target: Annotated[str, typer.Option(help="What the kernels are for.")] = "cpu",
    only: Annotated[str, typer.Option(help="Parts of names, between bars.")] = "",
    limit_s: Annotated[float, typer.Option(help="Seconds that a step may take.")] = 300.0,
    steps: Annotated[str, typer.Option(help="Of these steps.")] = "emit,build,compile",
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    """Writes <out>/text-and-time-<target>-<device>.json, where it replaces the rows that it ran."""
    run = run_of_today(on_cpu=target == "cpu")
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{SUITE}-{target}-{slug(device_name(target == 'cpu'))}.json"
    for row in chosen(ROWS, only):
        result = measured(row, target, limit_s, steps.split(","))
        print(line_of(result), flush=True)
        head = {"suite": SUITE, "target": target, **run}
        keep(path, head, run, result, [each.name for each in ROWS])
    print(f"written to {path}")


def measured(row: Row, target: str, limit_s: float, steps: list[str]) -> dict[str, Any]:
    """The figures of the steps; one that gave none says why under `problems`."""
    result: dict[str, Any] = {
        "name": row.name,
        "at_most": {"lines": row.lines, "seconds": row.seconds},
        "limit_s": limit_s,
        "load_average": os.getloadavg()[0],
        "seconds": {},
        "processor": {},
        "problems": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder, f"{row.path.stem}_new.py")
        for step in steps:
            if step == "compile" and not runs_here(target):
                continue
            if step == "build" and not new.exists():
                result["problems"][step] = "there is no file to build"
                continue
            answer = step_alone(step, row, target, new, limit_s)
            for kind in ("seconds", "processor"):
                result[kind] |= answer.pop(kind, {})
            problem = answer.pop("problem", None)
            result["problems"] |= {step: problem} if problem else {}
            result |= answer
    return result


def step_alone(step: str, row: Row, target: str, new: Path, limit_s: float) -> dict[str, Any]:
    """The answer of one step's process, which finds every cache empty."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        environ = {
            **os.environ,
            "TORCH_EXTENSIONS_DIR": f"{folder}/extensions",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "PYTHONPATH": str(ROOT / "src"),
        }
        command = [sys.executable, str(HERE / "steps.py"), step, row.name, target]
        done = run_child([*command, str(new), str(answer)], time_limit_s=limit_s, environ=environ)
        if answer.exists():
            return dict(json_of(answer))
        said = "" if done.timed_out else f": {done.last_line[:300]}"
        limit = f" of {limit_s:g} s" if done.timed_out else ""
        return {"problem": f"{done.ending()}{limit}{said}"}


def json_of(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def line_of(result: dict[str, Any]) -> str:
    lines, seconds = result.get("lines", {}), result["seconds"]
    spent = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    failed = "".join(f"; {step}: {why}" for step, why in result["problems"].items())
    whole = lines.get("whole", "no text")
    return f"{result['name']}: {whole} lines, {result.get('kernels')} kernels, {spent}{failed}"


if __name__ == "__main__":
    typer.run(main)
