"""How long a newcomer waits: the first command, each stage of the next ones, help and import.

    python benchmarks/first_contact.py

`make demo` runs in a clone of its own, in a folder with a space, in an environment that it makes;
the others in this one, on the examples at full size. One JSON file keeps the run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.record import run_of_today, slug  # noqa: E402

EXAMPLES = ("gelu", "linear_swish")
STAGE = re.compile(r"^ *([\d.]+) s  \[\d/\d\] (\w+)$", re.MULTILINE)
WRONG = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()

    def forward(self, x):
        return torch.nn.functional.gelu(x)
"""
OPWELD = (sys.executable, "-m", "opweld")
NUM_STARTS = 5


def main(
    demo: Annotated[bool, typer.Option(help="Also the first command, in a new clone.")] = True,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = HERE / "results",
) -> None:
    run = run_of_today()
    with tempfile.TemporaryDirectory() as folder:
        cases = [*([first_command(Path(folder))] if demo else []), *starts(), *work(Path(folder))]
    account = {"suite": "first-contact", **run, "cases": cases}
    path = out / f"first-contact-{slug(run['device'])}.json"
    path.write_text(json.dumps(account, indent=1) + "\n", "utf-8")
    print(f"written: {path}")


def first_command(folder: Path) -> dict[str, Any]:
    """`make demo` in a clone, with no environment active."""
    clone = folder / "a clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    paths = os.environ["PATH"].split(os.pathsep)
    active = os.environ.get("VIRTUAL_ENV")
    path = os.pathsep.join(each for each in paths if not (active and each.startswith(active)))
    left_out = ("VIRTUAL_ENV", "PYTHONPATH")
    environ = {name: value for name, value in os.environ.items() if name not in left_out}
    return timed("make demo", ["make", "demo"], clone, {**environ, "PATH": path})


def starts() -> list[dict[str, Any]]:
    """What every command and every program waits for; medians."""
    commands = {
        "import opweld": [sys.executable, "-c", "import opweld"],
        "opweld --help": [*OPWELD, "--help"],
    }
    found = []
    for name, command in commands.items():
        each = [timed(name, command, ROOT)["seconds"] for _ in range(NUM_STARTS)]
        found.append({"name": name, "seconds": statistics.median(each), "stages": {}})
    return found


def work(folder: Path) -> list[dict[str, Any]]:
    """Each example optimised, its result checked, and a wrong file checked."""
    found = []
    for name in EXAMPLES:
        model, new = f"examples/{name}.py", str(folder / f"{name}_new.py")
        found.append(timed(f"optimize {name}", [*OPWELD, "optimize", model, "-o", new], ROOT))
        if Path(new).exists():
            found.append(timed(f"check {name}", [*OPWELD, "check", model, new], ROOT))
    wrong = folder / "wrong.py"
    wrong.write_text(WRONG, "utf-8")
    command = [*OPWELD, "check", "examples/gelu.py", str(wrong)]
    found.append(timed("check a wrong file for gelu", command, ROOT, expected=1))
    return found


def timed(
    name: str,
    command: Sequence[str],
    folder: Path,
    environ: Mapping[str, str] | None = None,
    expected: int = 0,
) -> dict[str, Any]:
    """The seconds of a command and of its stages; another exit code than expected is a problem."""
    assert shutil.which(command[0]), command[0]
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    seconds = time.monotonic() - started
    began = [(float(at), stage) for at, stage in STAGE.findall(done.stderr)]
    ends = [at for at, _ in began[1:]] + [seconds]
    # A command without stages has no end of one either.
    stages = {stage: end - at for (at, stage), end in zip(began, ends, strict=False)}
    print(f"{name}: {seconds:.1f} s, exit code {done.returncode}", flush=True)
    found = {"name": name, "seconds": seconds, "stages": stages, "exit_code": done.returncode}
    wrong = {"problem": f"exit code {done.returncode}"} if done.returncode != expected else {}
    return {**found, **wrong}


if __name__ == "__main__":
    typer.run(main)
