"""What opweld makes of models of many fields: kernels, verdicts, and times.

    python benchmarks/any_model.py judge --store benchmarks/results/any-model-cpu.json
    python benchmarks/any_model.py time --store benchmarks/results/any-model-nvidia-h200.json

`judge` runs `opweld optimize` for each, one after the other; `time` emits and builds all side by
side, and measures them then in this process beside eager and torch.compile, in turns. A model that
the store has is not run again: an interrupted run goes on where it ended, and with `--folder` takes
what was built there. Those of the transformers library need it (pip install transformers).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.zoo.files import Entry, entries  # noqa: E402

from opweld.compiled import Compiled  # noqa: E402
from opweld.driver import compile_file  # noqa: E402
from opweld.judge.tree import tensors  # noqa: E402
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402

_JUDGE, _TIME = {"width": 64, "batch": 4, "length": 24}, {"width": 512, "batch": 16, "length": 128}
_ROUNDS, _WARM_S = 21, 0.02
_CLOCKS = ("eager_ms", "compile_ms", "opweld_ms")
Keep = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Limits:
    """Processes that build, and the seconds after which no model is begun, or built any more."""

    workers: int
    begin_s: float
    build_s: float


def main(
    what: Annotated[str, typer.Argument(help="judge or time.")],
    store: Annotated[Path, typer.Option(help="The JSON file that results are kept in.")],
    only: Annotated[list[str] | None, typer.Option(help="Models by name; all else.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that build side by side.")] = 8,
    limit: Annotated[float, typer.Option(help="Seconds after which none is begun.")] = 1e9,
    build_limit: Annotated[float, typer.Option(help="Seconds for all builds.")] = 1e9,
    folder: Annotated[Path | None, typer.Option(help="Where what is built stays.")] = None,
) -> None:
    if what not in ("judge", "time"):
        raise typer.BadParameter(f"{what!r} is not one of judge, time")
    sizes = _JUDGE if what == "judge" else _TIME
    kept = _read(store, what, sizes)
    waiting = [
        each
        for name, each in entries(**sizes).items()
        if name not in kept["models"] and (not only or name in only)
    ]
    run = _judge_all if what == "judge" else _time_all
    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        limits = Limits(workers, limit, build_limit)
        run(waiting, place.resolve(), limits, partial(_keep, store, kept))


def _read(path: Path, what: str, sizes: dict[str, int]) -> dict[str, Any]:
    if path.exists():
        return dict(json.loads(path.read_text("utf-8")))
    on = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    about = {"suite": "any-model", "what": what, "device": on, "date": str(date.today())}
    about |= {"versions": {"torch": torch.__version__}, "sizes": sizes, "models": {}}
    return {**about, "command": f"python benchmarks/any_model.py {what}"}


def _keep(path: Path, store: dict[str, Any], name: str, found: dict[str, Any]) -> None:
    store["models"][name] = found
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(store, indent=1, sort_keys=True) + "\n", "utf-8")
    partial.rename(path)
    print(name, json.dumps({k: v for k, v in found.items() if k != "left"}), flush=True)


def _file(entry: Entry, folder: Path) -> Path:
    path = folder / f"{''.join(c if c.isalnum() else '_' for c in entry.name).lower()}.py"
    path.write_text(entry.text, "utf-8")
    return path


# --- verdicts ---


def _judge_all(
    waiting: list[Entry], folder: Path, limits: Limits, keep: Callable[..., None]
) -> None:
    ends = time.monotonic() + limits.begin_s
    for entry in waiting:
        if time.monotonic() < ends:
            keep(entry.name, _judged(entry, folder))


def _judged(entry: Entry, folder: Path) -> dict[str, Any]:
    path, told = _file(entry, folder), folder / "told.json"
    told.unlink(missing_ok=True)
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    command = [sys.executable, "-m", "opweld", "optimize", str(path), "--mode", "eval"]
    command += ["--json", str(told), "--pass-env", "PYTHONPATH", "-o", str(folder / "made.py")]
    started = time.monotonic()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    found = {"field": entry.field, "seconds": round(time.monotonic() - started, 1)}
    if done.returncode != 0 or not told.exists():
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return {**found, "status": "none", "verdict": (lines or ["no word"])[-1]}
    account = json.loads(told.read_text("utf-8"))
    verdict, timing = account["verdict"], account["timing"] or {}
    medians = {name: timing[name]["median"] for name in _CLOCKS if timing.get(name)}
    text = (folder / "made.py").read_text("utf-8")
    return {
        **found,
        **_status(account["plan"]),
        "lines": text.count("\n"),
        "verdict": f"grade {verdict['grade']}" if verdict["passed"] else verdict["reason"],
        **medians,
    }


def _status(rows: list[dict[str, Any]]) -> dict[str, Any]:
    fused = {row["name"] for row in rows if row["kind"] not in ("library", "view", "loop")}
    left = [row for row in rows if row["name"] == "forward" and not row["variant"]]
    whole = not any(not row["module"] for row in left)
    status = "original" if not fused else "whole" if whole else "parts"
    calls = [row for row in rows if row["kind"] == "library" and row["name"] != "forward"]
    reasons = [f"{row['module'] or 'forward'}: {row['reason']}" for row in left]
    return {"status": status, "kernels": len(fused), "library": len(calls), "left": reasons}


# --- times ---


def _time_all(
    waiting: list[Entry], folder: Path, limits: Limits, keep: Callable[..., None]
) -> None:
    ends = time.monotonic() + limits.begin_s
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "extensions")
    paths = {entry.name: _file(entry, folder) for entry in waiting}
    anew = multiprocessing.get_context("spawn")  # a fork could not use the device
    pool = ProcessPoolExecutor(limits.workers, mp_context=anew)
    made = {entry.name: pool.submit(_made, str(paths[entry.name])) for entry in waiting}
    wait(made.values(), timeout=limits.build_s)
    workers = list(multiprocessing.active_children())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.kill()
    for entry in waiting:
        found: dict[str, Any] = {"field": entry.field}
        if time.monotonic() > ends:
            return
        try:
            found |= made[entry.name].result(timeout=1)
            found |= _timed(paths[entry.name])
        except (BrokenProcessPool, CancelledError, TimeoutError):
            found |= {"verdict": f"not built within {limits.build_s:.0f} s"}
        except Exception as error:  # a model that is refused, say
            found |= {"verdict": f"{type(error).__name__}: {error}"[:300]}
        keep(entry.name, {"status": "none", **found})


def _made(path: str) -> dict[str, Any]:
    """Emits and builds, and has torch.compile fill its cache; in a process of its own."""
    started = time.monotonic()
    target = "cuda" if torch.cuda.is_available() else "cpu"
    compiled = compile_file(Path(path), Options(target=target, mode="eval", check=False))
    emitted = time.monotonic()
    new = Path(path).with_name(f"{Path(path).stem}_new.py")
    new.write_text(compiled.text, "utf-8")
    import_file(new, new.stem)
    built = time.monotonic()
    module, call = _model(Path(path))
    with torch.no_grad():
        torch.compile(module)(*call)
    figures = {"emit_s": emitted - started, "build_s": built - emitted}
    figures["inductor_s"] = time.monotonic() - built
    rounded = {name: round(seconds, 1) for name, seconds in figures.items()}
    return {**_status(_rows(compiled)), "lines": compiled.text.count("\n"), **rounded}


def _rows(compiled: Compiled) -> list[dict[str, Any]]:
    names = ("name", "kind", "variant", "module", "reason")
    return [{name: getattr(row, name) for name in names} for row in compiled.plan_rows]


def _model(path: Path) -> tuple[nn.Module, list[torch.Tensor]]:
    file = import_file(path, path.stem)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    module = file.Model().eval().to(device)
    return module, [t.to(device) for t in file.get_inputs()]


def _timed(path: Path) -> dict[str, Any]:
    module, call = _model(path)
    new = import_file(path.with_name(f"{path.stem}_new.py"), f"{path.stem}_new").ModelNew().eval()
    new.load_state_dict(module.state_dict())
    new = new.to(call[0].device)
    sides = {"eager": module, "torch.compile": torch.compile(module), "opweld": new}
    with torch.no_grad():
        same = _agrees(new, module, call)
        counts = {name: _warmed(side, call) for name, side in sides.items()}
        found: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(_ROUNDS):
            for name, side in sides.items():
                found[name].append(_block(side, call, counts[name]))
    times = {f"{name}_ms": round(median(each) * 1e3, 5) for name, each in found.items()}
    return {**times, **same}


def _agrees(new: nn.Module, old: nn.Module, call: list[torch.Tensor]) -> dict[str, Any]:
    """The largest difference, and whether twenty equal calls gave equal bits, where state stays."""
    pairs = list(zip(_leaves(new(*call)), _leaves(old(*call)), strict=True))
    floats = [(a, b) for a, b in pairs if a.is_floating_point()]
    far = max((float((a - b).abs().max() / b.abs().max().clamp(min=1e-9)) for a, b in floats))
    state = [each.clone() for each in new.buffers()]
    first, equal = _leaves(new(*call)), True
    stays = all(torch.equal(a, b) for a, b in zip(state, new.buffers(), strict=True))
    for _ in range(20 if stays else 0):
        equal &= all(torch.equal(a, b) for a, b in zip(first, _leaves(new(*call)), strict=True))
    return {"far": float(f"{far:.2e}"), "equal": equal if stays else None}


def _leaves(value: Any) -> list[torch.Tensor]:
    return tensors(value)


def _warmed(side: Any, call: list[torch.Tensor]) -> int:
    """Calls until they take a while; how many a block has."""
    for _ in range(3):
        side(*call)
    took = max(_block(side, call, 3), 1e-6)
    return max(1, int(_WARM_S / took))


def _block(side: Any, call: list[torch.Tensor], count: int) -> float:
    """Seconds a call, by the wall clock."""
    if call[0].is_cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(count):
        side(*call)
    if call[0].is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / count


if __name__ == "__main__":
    typer.run(main)
