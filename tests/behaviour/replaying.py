"""How the calls of an emitted file were made: by Python, or replayed by C++."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tests.behaviour.emitted import load_file

from opweld.driver import compile_file
from opweld.options import Options


def compiled(folder: Path, source: str, **asked: Any) -> ModuleType:
    """The emitted file of a model's text; `asked` are options."""
    path = folder / "model.py"
    path.write_text(source, "utf-8")
    text = compile_file(path, Options(check=False, **asked)).text
    return load_file(folder / f"{folder.name}_new.py", text)


class Watch:
    """How each call of a file's ModelNew was made: "python", "recorded" or "replayed"."""

    def __init__(self, file: ModuleType) -> None:
        self.held, self.ways = file.ModelNew._opweld, []
        self.replay = self.held.replay

    def __enter__(self) -> list[str]:
        self.held.replay = self._replay
        return self.ways

    def __exit__(self, *error: object) -> None:
        self.held.replay = self.replay

    def _replay(self, *args: Any) -> Any:
        place = len(self.ways)
        self.ways.append("python")
        done = self.replay(*args)
        if done is not None:  # a forward that is recorded asks, too
            self.ways[place:] = ["recorded" if self.ways[place + 1 :] else "replayed"]
        return done


@contextmanager
def only_python(file: ModuleType) -> Iterator[None]:
    """While no call is recorded or replayed."""
    held = file.ModelNew._opweld
    replay, held.replay = held.replay, lambda *_: None
    try:
        yield
    finally:
        held.replay = replay


def by_python(file: ModuleType, net: Any, *args: torch.Tensor) -> Any:
    """What the statements of the forward give."""
    with only_python(file):
        return net(*args)
