"""The steps of a row of text_and_time.py, each a child process: they may hang or take all memory.

    python benchmarks/steps.py emit ROW TARGET FILE ANSWER       writes the emitted file
    python benchmarks/steps.py build ROW TARGET FILE ANSWER      has its kernels compiled
    python benchmarks/steps.py compile ROW TARGET FILE ANSWER    the first call of torch.compile

ANSWER is the JSON file for the figures. What every process imports first is in none of the times.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo
import torch._inductor.compile_fx
from torch.utils import cpp_extension

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.emitted_lines import parts_of  # noqa: E402
from benchmarks.networks import BY_NAME, Row, loaded, synchronised  # noqa: E402

from opweld.driver import compile_module  # noqa: E402
from opweld.model_file import import_file  # noqa: E402
from opweld.options import Options  # noqa: E402
from opweld.process.builder import NO_KERNELS  # noqa: E402
from opweld.process.resources import PYTORCHS_FLAGS  # noqa: E402
from opweld.target import TARGETS  # noqa: E402

# The compiler's stages by the three names under which their seconds are shown.
STAGES = {
    "capture": ("capture",),
    "plan": ("simplify", "plan", "lower"),
    "emit": ("render", "host", "emit"),
}


def main() -> None:
    step, name, target, file, answer = sys.argv[1:]
    before = processor_seconds()
    figures = STEPS[step](BY_NAME[name], target, Path(file))
    figures["processor"] = {step: processor_seconds() - before}
    Path(answer).write_text(json.dumps(figures), "utf-8")


def processor_seconds() -> float:
    """Of this process and of the compilers that it started: other work lengthens these less."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def emit(row: Row, target: str, new: Path) -> dict[str, Any]:
    """Writes the emitted file; its lines, its kernels, the seconds of the stages."""
    made = loaded(row, "cuda" if runs_here(target) and target != "cpu" else "cpu")
    options = Options(target=target, check=False)
    start = time.perf_counter()
    compiled = compile_module(made.module, made.inputs, {}, made.original, options)
    whole = time.perf_counter() - start
    new.write_text(compiled.text, "utf-8")
    spent = {
        name: sum(compiled.seconds.get(stage, 0.0) for stage in stages)
        for name, stages in STAGES.items()
    }
    return {
        "lines": {"whole": len(compiled.text.splitlines()), **parts_of(compiled.text)},
        "kernels": len({group.name for group in compiled.fused}),
        "seconds": {**spent, "whole": whole},
    }


def runs_here(target: str) -> bool:
    """Whether this machine has a device that runs the kernels for `target`."""
    return target == "cpu" or torch.cuda.is_available()


def build(row: Row, target: str, new: Path) -> dict[str, Any]:
    """Imports the emitted file with an empty cache; without a device its texts become objects."""
    told = contextlib.nullcontext() if runs_here(target) else _objects_alone(target)
    with warnings.catch_warnings(record=True) as caught, told:
        warnings.simplefilter("always")
        start = time.perf_counter()
        import_file(new, "emitted")
        seconds = time.perf_counter() - start
    said = [str(each.message).partition(NO_KERNELS)[2] for each in caught]
    problem = next((text for text in said if text and _Compiled.__name__ not in text), None)
    return {"problem": problem} if problem else {"seconds": {"build": seconds}}


class _Compiled(Exception):
    """Ends a build without a library: there is no device that could load one."""

    def __init__(self) -> None:
        super().__init__(type(self).__name__)


@contextlib.contextmanager
def _objects_alone(target: str) -> Iterator[None]:
    """The emitted file sees a device of the target; what it would build is compiled, not linked."""
    digits = TARGETS[target].arch.removeprefix("sm_").rstrip("a")
    capability = (int(digits[:-1]), int(digits[-1]))
    with (
        mock.patch.object(torch.cuda, "device_count", lambda: 1),
        mock.patch.object(torch.cuda, "get_device_capability", lambda device=None: capability),
        mock.patch.object(cpp_extension, "CUDA_HOME", _cuda_home()),
        mock.patch.object(cpp_extension, "load_inline", _compile_objects),
    ):
        yield


def _cuda_home() -> str:
    """Where nvcc says that its toolkit is: on PATH there may be a script that only starts it."""
    said = subprocess.run(["nvcc", "--dryrun", "-c", "x.cu"], capture_output=True, text=True)
    top = next(line for line in said.stderr.splitlines() if line.startswith("#$ TOP="))
    return str(Path(top.partition("=")[2]).resolve())


def _compile_objects(
    name: str,
    build_directory: str,
    cpp_sources: list[str],
    cuda_sources: list[str],
    extra_cflags: list[str],
    extra_cuda_cflags: list[str],
    **_: Any,
) -> None:
    """Both compilers side by side, as ninja runs them; raises what `load_inline` would, too."""
    folder, include = Path(build_directory), Path(torch.__file__).parent / "include"
    main, cuda = folder / "main.cpp", folder / "cuda.cu"
    main.write_text("\n".join(cpp_sources), "utf-8")
    cuda.write_text("\n".join(cuda_sources), "utf-8")
    includes = [f"-isystem{include}", f"-isystem{include}/torch/csrc/api/include"]
    host = ["c++", "-c", "-fPIC", "-std=c++20", *extra_cflags, *includes]
    device = ["nvcc", "-c", "-std=c++20", *PYTORCHS_FLAGS, *extra_cuda_cflags]
    device += ["--compiler-options", "-fPIC"]
    jobs = [
        subprocess.Popen(
            [*command, str(source), "-o", f"{source}.o"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command, source in ((host, main), (device, cuda))
    ]
    said = [job.communicate()[0] for job in jobs]
    for job, text in zip(jobs, said, strict=True):
        if job.returncode:
            raise RuntimeError(text)
    raise _Compiled


def compile_(row: Row, target: str, new: Path) -> dict[str, Any]:
    """Seconds of torch.compile's first two calls, with an empty cache; of training, and backward.

    The model is the row's own, not the emitted one.
    """
    device = "cpu" if target == "cpu" else "cuda"
    made, wait = loaded(row, device), synchronised(device)
    compiled = torch.compile(made.module)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        with torch.set_grad_enabled(row.training):
            result = compiled(*made.inputs)
            if row.training:
                result.float().sum().backward()
        wait()
        seconds.append(time.perf_counter() - start)
    return {"seconds": {"compile": seconds[0], "compile_second_call": seconds[1]}}


STEPS = {"emit": emit, "build": build, "compile": compile_}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        main()
