"""Emitted files of many models, compiled and built side by side: most of it is waiting for nvcc.

Under pytest-xdist one worker builds, and the others wait for what they need.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from filelock import FileLock, Timeout
from tests.behaviour.emitted import load_file
from tests.gpu.emitting import emitted_module

PATIENCE_S = 500
Within = Callable[[], AbstractContextManager[object]]
Job = Callable[[Path], bytes]


class SideBySide:
    """The modules by the names of their models; asking for one waits for it."""

    def __init__(self, left: Left) -> None:
        self._left = left
        self._modules = dict[str, ModuleType]()

    def __getitem__(self, name: str) -> ModuleType:
        if name not in self._modules:
            text = self._left(name).decode("utf-8")
            worker = os.environ.get("PYTEST_XDIST_WORKER", "here")
            module = load_file(self._left.directory / f"{_stem(name)}_{worker}.py", text)
            assert module.ModelNew._opweld.devices, "the kernels were not built"
            self._modules[name] = module
        return self._modules[name]


@contextlib.contextmanager
def built_side_by_side(
    sources: Mapping[str, str],
    factory: pytest.TempPathFactory,
    within: Within = contextlib.nullcontext,
    **asked: Any,
) -> Iterator[SideBySide]:
    """Begins to compile and to build all these models, each in a process of its own, `within` a
    context; `asked` are options.
    """
    jobs = {
        name: partial(_text_of_built, _stem(name), source, within, asked)
        for name, source in sources.items()
    }
    with made_side_by_side(repr((within.__name__, sorted(sources.items()))), jobs, factory) as left:
        yield SideBySide(left)


def _text_of_built(
    stem: str, source: str, within: Within, asked: dict[str, Any], directory: Path
) -> bytes:
    """The emitted text of a model whose kernels the next import finds built."""
    with within():
        module = emitted_module(directory, stem, source, **asked)
    return Path(str(module.__file__)).read_bytes()


@dataclass(frozen=True)
class Left:
    """What jobs leave by their names; asking for it waits for the job."""

    directory: Path

    def __call__(self, name: str) -> bytes:
        done, failed = (self.directory / f"{_stem(name)}.{end}" for end in ("done", "failed"))
        end = time.monotonic() + PATIENCE_S
        while not done.exists():
            assert not failed.exists(), failed.read_text("utf-8")
            assert time.monotonic() < end, f"{name} was not built in {PATIENCE_S} s"
            time.sleep(0.1)
        return done.read_bytes()


@contextlib.contextmanager
def made_side_by_side(
    key: str, jobs: Mapping[str, Job], factory: pytest.TempPathFactory
) -> Iterator[Left]:
    """Begins all these jobs, each in a process of its own: of workers that ask for jobs of the same
    key one begins them. A job is given a directory, and leaves bytes.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    base = factory.getbasetemp().parent if worker else factory.mktemp("built")
    directory = base / f"built_{sha256(key.encode()).hexdigest()[:12]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(base / "extensions"))
        try:
            directory.mkdir()
        except FileExistsError:
            yield Left(directory)
            return
        spawn = multiprocessing.get_context("spawn")
        workers = max(1, min(16, (os.cpu_count() or 2) - 1))
        with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
            for name, job in jobs.items():
                pool.submit(_do, directory, _stem(name), job)
            yield Left(directory)


def _do(directory: Path, stem: str, job: Job) -> None:
    """Leaves what the job gives, or what failed."""
    try:
        with _turn(directory.parent):
            made = job(directory)
        _leave(directory / f"{stem}.done", made)
    except BaseException as failure:
        _leave(directory / f"{stem}.failed", f"{type(failure).__name__}: {failure}".encode())
        raise


@contextlib.contextmanager
def _turn(directory: Path) -> Iterator[None]:
    """Waits until fewer than there are cores build: files of tests that begin side by side have
    processes of their own, whose compilers together would not fit the machine's memory.
    """
    locks = [FileLock(directory / f"turn{number}.lock") for number in range(os.cpu_count() or 2)]
    while (lock := next(filter(_taken, locks), None)) is None:
        time.sleep(0.2)
    try:
        yield
    finally:
        lock.release()


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True


def _leave(path: Path, made: bytes) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(made)
    part.rename(path)


def _stem(name: str) -> str:
    return name.replace(" ", "_")
