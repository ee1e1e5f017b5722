"""Kernels that are built before it is a candidate's turn, in a process that sees no GPU.

Importing the file builds them, in the folder that the candidate's process will be given. Whatever
else happens then happens again where the candidate is judged, which waits for a build of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import opweld
from opweld.judge.build.locks import BUILDS
from opweld.process.child import run_child
from opweld.sandbox import DEFAULT, Sandbox

VISIBLE = "CUDA_VISIBLE_DEVICES"
ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"
_QUERY_LIMIT_S = 60.0

# The place of a pair in the stream, its two files, the folder that its kernels are built in.
Job = tuple[int, Path, Path, Path]


class Ahead:
    """As many as `builders` candidates that build, or are built and wait for their turn.

    `environ` is added to this process's environment. Leaving it ends the builds.
    """

    def __init__(
        self,
        builders: int,
        environ: dict[str, str],
        time_limit_s: float,
        sandbox: Sandbox = DEFAULT,
    ) -> None:
        self._builders = builders
        self._sandbox = sandbox
        self._environ = {**os.environ, **environ, "PYTHONPATH": _path(), VISIBLE: ""}
        self._time_limit_s = time_limit_s
        self._left = threading.Event()
        self._pool = ThreadPoolExecutor(builders)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *how: object) -> None:
        self._left.set()
        self._pool.shutdown(cancel_futures=True)

    def built(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """The jobs in their order, each when the attempt to build it has ended."""
        waiting = deque[tuple[Job, Future[None]]]()
        while True:
            for job in islice(jobs, self._builders - len(waiting)):
                waiting.append((job, self._pool.submit(self._build, *job[2:])))
            if not waiting:
                return
            job, done = waiting.popleft()
            done.result()
            yield job

    def _build(self, new: Path, folder: Path) -> None:
        """Import a candidate, so that its kernels stand in `folder`; empty where that fails."""
        folder.mkdir(parents=True, exist_ok=True)
        finished = run_child(
            [sys.executable, "-m", "opweld.judge.build.import_only", str(new)],
            time_limit_s=self._time_limit_s,
            environ={**self._environ, BUILDS: str(folder)},
            stop=self._left.is_set,
            sandbox=self._sandbox,
            writable=(folder,),
        )
        if finished.status or finished.timed_out:  # a lock may have been left, or half a build
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)


def _path() -> str:
    """PYTHONPATH with this very opweld."""
    source = str(Path(opweld.__file__).parent.parent)
    return os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])


def architecture_of(device: str) -> dict[str, str]:
    """What makes torch compile for this GPU ("cuda:0") where no process sees it; {} for a CPU.

    It is what torch takes for a GPU that it sees: its architecture, and code for later ones.
    """
    kind, _, number = device.partition(":")
    if kind == "cpu" or os.environ.get(ARCHITECTURES):
        return {}
    asked = ["--query-gpu=compute_cap", "--format=csv,noheader", f"--id={number or 0}"]
    command = ["nvidia-smi", *asked]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = done.stdout.strip()
    return {ARCHITECTURES: f"{found}+PTX"} if not done.returncode and found else {}
