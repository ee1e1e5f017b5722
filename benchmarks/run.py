"""Optimises and measures a suite of models on this machine; one JSON file keeps the whole run.

    python benchmarks/run.py gpu          the examples at full size
    python benchmarks/run.py hand         the hand-written files of the founding models alone
    python benchmarks/run.py cpu          smaller models, with fresh and with recycled output memory

Each model is one `opweld optimize` in a process of its own: eager, torch.compile, ModelNew and the
machine's limit stand side by side in the same run. Kernels are built cold, in an empty cache.
Where `by_hand/` has a hand-written file for the model, `opweld check` judges and times it next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.record import device_name, keep, run_of_today, slug  # noqa: E402

# glibc keeps large blocks instead of giving them back: no page faults for a new output.
RECYCLED = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=8589934592"
    ":glibc.malloc.trim_threshold=17179869184"
}


@dataclass(frozen=True)
class Case:
    """One line of a suite."""

    name: str
    model: Path
    environ: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    by_hand: Path | None = None


def example(name: str) -> Case:
    hand = HERE / "by_hand" / f"{name}.py"
    model = ROOT / "examples" / f"{name}.py"
    return Case(name, model, by_hand=hand if hand.exists() else None)


def on_cpu(name: str) -> tuple[Case, ...]:
    model = HERE / "models" / f"{name}.py"
    return (
        Case(f"{name}, fresh memory", model, {}, ("--target", "cpu")),
        Case(f"{name}, recycled memory", model, RECYCLED, ("--target", "cpu")),
    )


FOUNDING = ("gelu", "relu", "linear_swish", "linear_sigmoid", "linear_relu")
SUITES: dict[str, tuple[Case, ...]] = {
    "hand": tuple(map(example, FOUNDING)),
    "gpu": tuple(
        example(name)
        for name in (
            *FOUNDING,
            "chain",
            "chain_bf16",
        )
    ),
    "cpu": (
        *on_cpu("gelu_2048x8192"),
        *on_cpu("swish_clamp_tanh"),
        *on_cpu("linear_1024x2048x2048"),
    ),
}


def main(
    suite: Annotated[str, typer.Argument(help="gpu, hand or cpu")],
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
    only: Annotated[str, typer.Option(help="Only the cases whose name has this in it.")] = "",
    baselines: Annotated[str, typer.Option(help="What to time ModelNew beside.")] = "",
    quick: Annotated[bool, typer.Option(help="No hand-written files, no times of builds.")] = False,
) -> None:
    """Runs a suite and writes <out>/<suite>-<device>.json, where it replaces the cases it ran."""
    cases = [case for case in SUITES[suite] if only in case.name]
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{suite}-{slug(device_name())}.json"
    run = run_of_today()
    names = [case.name for case in SUITES[suite]]
    for case in cases:
        if baselines:
            case = replace(case, arguments=(*case.arguments, "--baselines", baselines))
        result = check_alone(case) if suite == "hand" else run_case(case, quick)
        print(line_of(result), flush=True)
        keep(path, {"suite": suite, **run}, run, result, names)
    print(f"written to {path}")


def run_case(case: Case, quick: bool) -> dict[str, Any]:
    """The account of one optimisation, with the seconds that its steps took."""
    with tempfile.TemporaryDirectory() as folder:
        new, account = Path(folder, f"{case.model.stem}_new.py"), Path(folder, "account.json")
        environ = {**os.environ, **case.environ, "TORCH_EXTENSIONS_DIR": f"{folder}/cache"}
        environ["PYTHONPATH"] = str(ROOT / "src")
        model = str(case.model.relative_to(ROOT))
        optimize = [sys.executable, "-m", "opweld", "optimize", model, "-o", str(new)]
        done = call([*optimize, "--json", str(account), *case.arguments], environ)
        if not account.exists():
            return {"name": case.name, "status": done.returncode, "output": done.stdout[-4000:]}
        result = json.loads(account.read_text())
        for texts in ("sources", "kernel_texts", "line_texts"):  # which the repository has
            del result[texts]
        build = build_seconds(new, environ) if new.exists() and not quick else {}
        compared = case.by_hand and not quick
        by_hand = {"by_hand": check_by_hand(case, environ)} if compared else {}
    return {"name": case.name, "status": done.returncode, "build": build, **result, **by_hand}


def check_alone(case: Case) -> dict[str, Any]:
    """The hand-written file as the only one beside eager and torch.compile; builds are kept."""
    environ = {**os.environ, **case.environ, "PYTHONPATH": str(ROOT / "src")}
    return {"name": case.name, **check_by_hand(case, environ)}


def check_by_hand(case: Case, environ: dict[str, str]) -> dict[str, Any]:
    """The account of judging the hand-written file against the same model."""
    with tempfile.TemporaryDirectory() as folder:
        account = Path(folder, "account.json")
        files = [str(path.relative_to(ROOT)) for path in (case.model, case.by_hand) if path]
        check = [sys.executable, "-m", "opweld", "check", *files, "--json", str(account)]
        done = call([*check, *case.arguments], environ)
        if not account.exists():
            return {"status": done.returncode, "output": done.stdout[-4000:]}
        return {"status": done.returncode, **json.loads(account.read_text())}


def build_seconds(new: Path, environ: dict[str, str]) -> dict[str, float]:
    """Seconds that importing the emitted file takes beyond importing torch, cold and warm."""
    with tempfile.TemporaryDirectory() as cache:
        environ = {**environ, "TORCH_EXTENSIONS_DIR": cache}
        return {state: import_seconds(new, environ) for state in ("cold_s", "warm_s")}


IMPORT = """
import sys, time, torch, torch.utils.cpp_extension
start = time.perf_counter()
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), {"__name__": "emitted"})
print(time.perf_counter() - start)
"""


def import_seconds(new: Path, environ: dict[str, str]) -> float:
    return float(call([sys.executable, "-c", IMPORT, str(new)], environ).stdout.split()[-1])


def call(command: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    start = time.perf_counter()
    done = subprocess.run(
        command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT
    )
    print(f"{' '.join(command[1:5])}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return done


def line_of(result: dict[str, Any]) -> str:
    timing = result.get("timing")
    if not timing:
        return f"{result['name']}: status {result['status']}\n{result.get('output', '')}"
    medians = {
        name: timing[name]["median"] if timing.get(name) else float("nan")
        for name in ("eager_ms", "compile_ms", "opweld_ms")
    }
    hand = (result.get("by_hand") or {}).get("timing")
    if hand:
        medians["by_hand_ms"] = hand["opweld_ms"]["median"]
    figures = ", ".join(f"{name} {value:.4g}" for name, value in medians.items())
    return f"{result['name']}: {figures}, limit_ms {timing['limit_ms']:.4g}"


if __name__ == "__main__":
    typer.run(main)
