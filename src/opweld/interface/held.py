"""A module object as a pair of files for the judge: pickled once, read back on either side.

Classes that no import can reach travel as source (`embed.py`); pickle finds them by their names,
in the source's own namespace on the original's side and in the emitted file's on the other.
"""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from opweld.errors import CaptureError
from opweld.model_file import import_file

_CLASSES = "opweld_held_classes"
ORIGINAL_FILE = '''"""Stands for the module that was handed to opweld.optimize."""
import torch

from opweld.interface.held import Held

_held = Held.at({folder!r})


class Model(torch.nn.Module):
    def __new__(cls):
        return _held.module()


def get_inputs():
    return _held.call()


def get_init_inputs():
    return []
'''
NEW_FILE = '''"""Stands for the same module, adopted by the emitted file."""
import torch

from opweld.interface.held import Held

_held = Held.at({folder!r})


class ModelNew(torch.nn.Module):
    def __new__(cls):
        return _held.adopted({emitted!r})
'''


@dataclass(frozen=True, slots=True)
class Held:
    """A module and one call of it in `folder`.

    `source` is the text of the classes that stand in no importable module, `homes` the names of the
    modules that they came from; `paths` is the import path of the process that wrote.
    """

    folder: str
    source: str | None
    homes: tuple[str, ...]
    paths: tuple[str, ...]

    @classmethod
    def at(cls, folder: str) -> Held:
        """What `write` left in `folder`; its import path is this process's from now on."""
        data = json.loads(Path(folder, "held.json").read_text("utf-8"))
        held = cls(data["folder"], data["source"], tuple(data["homes"]), tuple(data["paths"]))
        sys.path[:0] = [path for path in held.paths if path not in sys.path]
        return held

    def write(self, module: nn.Module, call: list[Any] | dict[str, Any]) -> tuple[Path, Path]:
        """Writes everything; returns the original's file and where the other one is to be.

        Raises:
            CaptureError: the module or the call cannot be pickled.
        """
        folder = Path(self.folder)
        try:
            torch.save({"module": module, "call": call}, folder / "held.pt")
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise CaptureError(
                f"the module cannot be pickled for its judge: {error}",
                next_step="mend that, or leave the judge out with check=False",
            ) from error
        (folder / "held.json").write_text(json.dumps(asdict(self)), "utf-8")
        if self.source is not None:
            (folder / f"{_CLASSES}.py").write_text(self.source, "utf-8")
        original = folder / "original.py"
        original.write_text(ORIGINAL_FILE.format(folder=self.folder), "utf-8")
        return original, folder / "adopted.py"

    def write_adopted(self, emitted: Path) -> None:
        text = NEW_FILE.format(folder=self.folder, emitted=str(emitted))
        Path(self.folder, "adopted.py").write_text(text, "utf-8")

    def module(self) -> nn.Module:
        return self._read(self._classes())["module"]

    def call(self) -> list[Any] | dict[str, Any]:
        return self._read(self._classes())["call"]

    def adopted(self, emitted: str) -> nn.Module:
        """The module as the emitted file's ModelNew."""
        new = import_file(Path(emitted), "opweld_emitted")
        return new.ModelNew.adopt(self._read(getattr(new, "_original", None))["module"])

    def _classes(self) -> ModuleType | None:
        if self.source is None:
            return None
        return sys.modules.get(_CLASSES) or import_file(
            Path(self.folder, f"{_CLASSES}.py"), _CLASSES
        )

    def _read(self, classes: ModuleType | None) -> dict[str, Any]:
        reader = _reader(self.homes if classes else (), classes)
        return torch.load(Path(self.folder, "held.pt"), pickle_module=reader, weights_only=False)


def _reader(homes: tuple[str, ...], classes: ModuleType | None) -> Any:
    """Pickle, with the names of the modules `homes` looked up in `classes`."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            return getattr(classes, name) if module in homes else super().find_class(module, name)

    return SimpleNamespace(Unpickler=Unpickler, load=pickle.load, __name__="pickle")
