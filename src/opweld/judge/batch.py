"""Judging many candidates: one warm server a GPU, one judgement at a time on each."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

from opweld.errors import OpweldError
from opweld.judge import check, sandbox_of
from opweld.judge.build.ahead import VISIBLE, Ahead, Job, architecture_of
from opweld.judge.process.spawn import Server
from opweld.judge.values import Judgement, Settings

CPU = "cpu"
_QUERY_LIMIT_S = 60.0
_STOP_TICK_S = 0.02

Pair = tuple[str | Path, str | Path]


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of the pair at `index`: a judgement, or the error that there can be none.

    `error` is a `UserError` for a file that cannot be judged, and in general whatever `check`
    raises. `device` is where it was judged, `seconds` how long that took.
    """

    index: int
    model_path: Path
    new_path: Path
    device: str
    seconds: float
    judgement: Judgement | None = None
    error: OpweldError | None = None

    @property
    def passed(self) -> bool:
        return self.judgement is not None and self.judgement.verdict.passed


def check_many(
    pairs: Iterable[Pair],
    *,
    settings: Settings | None = None,
    devices: Sequence[str] | None = None,
    builders: int = 0,
) -> Iterator[Judged]:
    """Judges pairs of a model file and a candidate, and yields each as soon as it is done.

    A pair is taken from `pairs` when a device is free for it, so that they may be made on the way.
    Each candidate builds its kernels in an empty folder. A server that dies is replaced, and the
    pair that it died of is judged once more. Leaving the iteration ends what still runs.

    Args:
        pairs: (model file, file with ModelNew).
        settings: how each is judged, as `check` takes it; `device` counts where `devices` is None.
        devices: such as ("cuda:0", "cuda:1"), a server for each. None is every GPU that is visible,
            or the CPU where there is none. Times on a device that is named twice mean nothing.
        builders: how many candidates build their kernels beside those that are judged, in processes
            that see no GPU; so many pairs are taken ahead. It makes a stream of files with CUDA
            faster by as much as a build takes, and needs processors that timing can do without.
    """
    settings = settings or Settings()
    chosen = tuple(devices) if devices else default_devices(settings.device)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="builds-")))
        workers = [_Worker(name, settings, folder) for name in chosen]
        for worker in workers:
            stack.callback(worker.server.close)
        pool = stack.enter_context(ThreadPoolExecutor(len(workers)))
        for worker in workers:
            stack.callback(worker.stop)
        files = enumerate((Path(model), Path(new)) for model, new in pairs)
        numbered = ((n, *pair, folder / str(n)) for n, pair in files)
        if not builders:
            yield from _judged(numbered, workers, pool)
            return
        environ = architecture_of(chosen[0])
        sandbox = sandbox_of(settings)
        with Ahead(builders, environ, settings.time_limit_s, sandbox) as ahead:
            yield from _judged(ahead.built(numbered), workers, pool)


def _judged(
    jobs: Iterator[Job],
    workers: Sequence[_Worker],
    pool: ThreadPoolExecutor,
) -> Iterator[Judged]:
    free: SimpleQueue[_Worker] = SimpleQueue()
    for worker in workers:
        free.put(worker)

    def judge(job: Job) -> Judged:
        worker = free.get()
        try:
            return worker.judge(*job)
        finally:
            free.put(worker)

    running: set[Future[Judged]] = set()
    while True:
        places = len(workers) - len(running)
        running |= {pool.submit(judge, job) for job in islice(jobs, places)}
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        yield from sorted((each.result() for each in done), key=lambda judged: judged.index)


class _Worker:
    """A device, and the warm server for it."""

    def __init__(self, device: str, settings: Settings, builds: Path) -> None:
        self.device = device
        self._settings = replace(settings, device=device.partition(":")[0])
        self._busy = self._stopped = False
        self.server = Server(visible_to(device), sandbox_of(settings), (builds,))

    def judge(self, index: int, model: Path, new: Path, builds: Path) -> Judged:
        start = time.perf_counter()
        judgement, error = None, None
        self._busy = True
        try:
            judgement = self._check(model, new, builds)
        except OpweldError as caught:
            error = caught
        finally:
            self._busy = False
            shutil.rmtree(builds, ignore_errors=True)
        seconds = time.perf_counter() - start
        return Judged(index, model, new, self.device, seconds, judgement, error)

    def stop(self) -> None:
        """End what is being judged; again and again, as it may just be about to start."""
        self._stopped = True
        while self._busy:
            self.server.interrupt()
            time.sleep(_STOP_TICK_S)

    def _check(self, model: Path, new: Path, builds: Path) -> Judgement:
        deaths = self.server.num_deaths
        builds.mkdir(parents=True, exist_ok=True)
        judgement = self._check_once(model, new, builds)
        if self._stopped or self.server.num_deaths == deaths:
            return judgement
        shutil.rmtree(builds, ignore_errors=True)
        builds.mkdir(parents=True)
        return self._check_once(model, new, builds)

    def _check_once(self, model: Path, new: Path, builds: Path) -> Judgement:
        return check(model, new, self._settings, server=self.server, builds=builds)


def default_devices(device: str) -> tuple[str, ...]:
    """Every GPU that is visible where `device` ("auto", "cuda", "cpu") allows it, or the CPU."""
    if device.startswith("cuda:"):
        return (device,)
    num = 0 if device == CPU else num_gpus()
    if device == "cuda":
        num = max(num, 1)  # where there is none, each judgement says so
    return tuple(f"cuda:{n}" for n in range(num)) or (CPU,)


def num_gpus() -> int:
    """The GPUs that a process started from here would see; asked without CUDA or torch."""
    visible = os.environ.get(VISIBLE)
    if visible is not None:
        return len(_listed(visible))
    try:
        done = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=_QUERY_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return sum(line.startswith("GPU ") for line in lines)


def visible_to(device: str) -> dict[str, str]:
    """The variable that leaves a server only `device`: it counts among those visible here."""
    kind, _, number = device.partition(":")
    if kind == CPU:
        return {VISIBLE: ""}
    listed = _listed(os.environ.get(VISIBLE, ""))
    index = int(number or 0)
    return {VISIBLE: listed[index] if index < len(listed) else str(index)}


def _listed(visible: str) -> list[str]:
    """CUDA's own reading: the list ends at the first entry that is none."""
    names = [name.strip() for name in visible.split(",")]
    return names[: next((n for n, name in enumerate(names) if name in ("", "-1")), len(names))]
