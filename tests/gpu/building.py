"""Emitted files of many models, compiled and built side by side: most of it is waiting for nvcc."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from tests.behaviour.emitted import load_file
from tests.gpu.emitting import emitted_module


class SideBySide:
    """The modules by the names of their models; asking for one waits for it."""

    def __init__(self, futures: Mapping[str, Future[str]], folder: Path) -> None:
        self._futures, self._folder = futures, folder
        self._modules = dict[str, ModuleType]()

    def __getitem__(self, name: str) -> ModuleType:
        if name not in self._modules:
            text = self._futures[name].result(timeout=500)
            module = load_file(self._folder / f"{_stem(name)}_here.py", text)
            assert module._ops is not None, "the kernels were not built"
            self._modules[name] = module
        return self._modules[name]


@contextlib.contextmanager
def built_side_by_side(
    sources: Mapping[str, str], factory: pytest.TempPathFactory
) -> Iterator[SideBySide]:
    """Begins to compile and to build all these models, each in a process of its own."""
    folder = factory.mktemp("built")
    workers = max(1, min(12, (os.cpu_count() or 2) - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(factory.mktemp("extensions")))
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
            futures = {
                name: pool.submit(_build, str(folder), _stem(name), source)
                for name, source in sources.items()
            }
            yield SideBySide(futures, folder)


def _build(folder: str, stem: str, source: str) -> str:
    """Leaves the kernels where the next import finds them; the emitted text."""
    module = emitted_module(Path(folder), stem, source)
    return Path(str(module.__file__)).read_text("utf-8")


def _stem(name: str) -> str:
    return name.replace(" ", "_")
