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


class SideBySide:
    """The modules by the names of their models; asking for one waits for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules = dict[str, ModuleType]()

    def __getitem__(self, name: str) -> ModuleType:
        if name not in self._modules:
            text = _waited_for(self._folder, _stem(name))
            worker = os.environ.get("PYTEST_XDIST_WORKER", "here")
            module = load_file(self._folder / f"{_stem(name)}_{worker}.py", text)
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
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    base = factory.getbasetemp().parent if worker else factory.mktemp("built")
    named = repr((within.__name__, sorted(sources.items())))
    folder = base / f"built_{sha256(named.encode()).hexdigest()[:12]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(base / "extensions"))
        try:
            folder.mkdir()
        except FileExistsError:
            yield SideBySide(folder)
            return
        spawn = multiprocessing.get_context("spawn")
        workers = max(1, min(16, (os.cpu_count() or 2) - 1))
        with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
            for name, source in sources.items():
                pool.submit(_build, str(folder), _stem(name), source, within, asked)
            yield SideBySide(folder)


def _build(folder: str, stem: str, source: str, within: Within, asked: dict[str, Any]) -> None:
    """Leaves the kernels where the next import finds them, and the emitted text or what failed."""
    try:
        with _turn(Path(folder).parent), within():
            module = emitted_module(Path(folder), stem, source, **asked)
        _leave(Path(folder) / f"{stem}.built", Path(str(module.__file__)).read_text("utf-8"))
    except BaseException as failure:
        _leave(Path(folder) / f"{stem}.failed", f"{type(failure).__name__}: {failure}")
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


def _leave(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text, "utf-8")
    part.rename(path)


def _waited_for(folder: Path, stem: str) -> str:
    built, failed = folder / f"{stem}.built", folder / f"{stem}.failed"
    end = time.monotonic() + PATIENCE_S
    while not built.exists():
        assert not failed.exists(), failed.read_text("utf-8")
        assert time.monotonic() < end, f"{stem} was not built in {PATIENCE_S} s"
        time.sleep(0.1)
    return built.read_text("utf-8")


def _stem(name: str) -> str:
    return name.replace(" ", "_")
