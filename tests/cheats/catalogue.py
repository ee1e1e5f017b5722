"""The files of this folder, and what each says of itself in its constants.

`cheats` must fail, `honest` must pass; `gainless` holds cheats that are right and win nothing.


    MODEL          the model file that it stands against
    CLASS          what kind of cheat it is, one of CLASSES
    CAUGHT_BY      checks that must fail, all of them; `a | b` where one of several will do
    SAID           a regular expression that the verdict's sentence has to match
    NOTED          the check that passes and says something all the same (honest files)
    DEVICE         "cuda" where it needs a GPU, "cpu" where it needs the host
    MODE           the mode that it is judged in, where that is not the model file's
    NEEDS          a module without which it cannot be tried
    MEASURE        whether it shows in the timed runs only
    FOR_INFERENCE  whether its results carry no gradients (honest files)
    TIME_LIMIT_S   for those that never end
    SLOW           whether it takes more than ten seconds
    PENDING        why the judge does not do right by it yet: the test must fail
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CLASSES = (
    "gradients",
    "layouts",
    "sizes",
    "other arguments",
    "weights",
    "modes and dtypes",
    "random state",
    "process state",
    "the judge's objects",
    "clock",
    "replaced functions",
    "kept results",
    "recognising the judge",
    "precision and numbers",
    "work left out",
    "deferred work",
    "form of results",
    "crashes and floods",
    "GPU and streams",
)
# Small models gain nothing from threads, and on a busy machine threads that wait for each other
# take ten times as long.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Entry:
    """One file of the catalogue."""

    path: Path
    model: Path
    kind: str | None
    caught_by: tuple[tuple[str, ...], ...]
    said: str
    noted: str | None
    device: str | None
    mode: str
    measure: bool
    for_inference: bool
    time_limit_s: float
    slow: bool
    pending: str | None
    cuda: str | None

    def matches(self, reason: str) -> bool:
        """Whether a verdict's sentence says what it has to."""
        return re.search(self.said, reason) is not None

    @property
    def name(self) -> str:
        return self.path.stem


def entries(folder: str) -> tuple[Entry, ...]:
    """All files of a folder whose modules this machine has."""
    return tuple(entry for path in sorted((HERE / folder).glob("*.py")) for entry in _read(path))


def parameters(folder: str, device: str) -> list[Any]:
    """The entries for a device, as parameters of a test."""
    chosen = [e for e in entries(folder) if (e.device or "cpu") == device]
    return [pytest.param(e, id=e.name, marks=_marks(e)) for e in chosen]


def _marks(entry: Entry) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.slow] if entry.slow else []
    if entry.pending:
        marks.append(pytest.mark.xfail(strict=True, reason=entry.pending))
    return [*marks, pytest.mark.gpu] if entry.device == "cuda" else marks


def _read(path: Path) -> Iterator[Entry]:
    said = _constants(path)
    if "NEEDS" in said and importlib.util.find_spec(said["NEEDS"]) is None:
        return
    yield Entry(
        path=path,
        model=HERE / "models" / f"{said['MODEL']}.py",
        kind=said.get("CLASS"),
        caught_by=tuple(tuple(group.split(" | ")) for group in said.get("CAUGHT_BY", ())),
        said=said.get("SAID", ""),
        noted=said.get("NOTED"),
        device=said.get("DEVICE"),
        mode=said.get("MODE", "own"),
        measure=said.get("MEASURE", False),
        for_inference=said.get("FOR_INFERENCE", False),
        time_limit_s=said.get("TIME_LIMIT_S", 300.0),
        slow=said.get("SLOW", False),
        pending=said.get("PENDING"),
        cuda=said.get("_CUDA"),
    )


def _constants(path: Path) -> dict[str, Any]:
    """The literals that upper-case names are given at the top of a file."""
    found = {}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
                try:
                    found[name] = ast.literal_eval(value)
                except ValueError:
                    continue  # it is computed, and no business of this catalogue
    return found
