"""What can go wrong, as classes: each carries its exit code, the place, and what to do next.

`str(error)` is what the command line prints: one sentence, with the place in front where there is
one and the next step behind it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the user's world: a file, a line in it, a node of the captured graph."""

    file: str | None = None
    line: int | None = None
    text: str | None = None
    node: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.file and self.line is not None:
            place += f":{self.line}"
        if self.text:
            place += f" `{clipped(self.text.strip())}`"
        if self.node:
            place += f" (node {self.node})" if place else f"node {self.node}"
        return place.strip()


def clipped(text: str, limit: int = 160) -> str:
    """`text`, or its beginning where that is longer than a terminal's line or two."""
    return text if len(text) <= limit else f"{text[:limit]} ..."


class OpweldError(Exception):
    """Any failure that opweld explains itself.

    Args:
        sentence: what is wrong, without a full stop.
        where: the file, line or node that it concerns.
        next_step: what the user can do about it, as an imperative.
    """

    exit_code = 1

    def __init__(
        self, sentence: str, *, where: Where | None = None, next_step: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.where = where
        self.next_step = next_step
        self.child_traceback: str | None = None

    def __str__(self) -> str:
        place = str(self.where) if self.where else ""
        start = f"{place}: " if place else ""
        end = f"; {self.next_step}" if self.next_step else ""
        return " ".join(f"{start}{self.sentence}{end}".split())

    def __reduce__(self) -> tuple[Any, ...]:
        return from_data, (self.to_data(),)

    def to_data(self) -> dict[str, Any]:
        """Plain data that survives JSON; `from_data` gives the error back."""
        return {
            "class": type(self).__name__,
            "sentence": self.sentence,
            "where": asdict(self.where) if self.where else None,
            "next_step": self.next_step,
        }


class UserError(OpweldError):
    """Bad input or usage: nothing is written, the exit code is 2."""

    exit_code = 2


class ModelFileError(UserError):
    """The model file is missing, is not Python, lacks a name, or raises."""


class ModelTimeout(UserError):
    """The model file did not return within the time limit."""


class ModelOutOfMemory(UserError):
    """The model and its inputs do not fit into this machine's memory."""


class CaptureError(UserError):
    """torch.export refused the model; carries the reason and the user's line."""


class OriginalKept(CaptureError):
    """The module is in order, but a graph cannot hold what its forward does: ModelNew is it."""


class UnsupportedPrecision(UserError):
    """A precision policy that does not exist yet was asked for."""


class UnsupportedTarget(UserError):
    """The target is unknown, or this machine cannot serve it."""


class SandboxMissing(UserError):
    """The sandbox was required, and the kernel lacks a part of it."""


class MissingCompiler(UserError):
    """g++, nvcc or ninja is not there."""


class BuildFailed(UserError):
    """The compiler was there and refused the source."""


class BadTable(UserError):
    """The table of measured schedules cannot be read, or has a line that is no row."""


class OutputNotWritable(UserError):
    """The output file, or a file asked for beside it, cannot be written."""


class JudgeFailed(OpweldError):
    """ModelNew is not equivalent to the original, crashed, or timed out while judged."""


class SearchFailed(OpweldError):
    """A candidate of `opweld tune` crashed or hung while it was measured."""


class InternalError(OpweldError):
    """An invariant of the compiler does not hold: a bug, not a mistake of the user."""


def error_classes() -> tuple[type[OpweldError], ...]:
    """Every class of this module, parents first; others may carry more than plain data."""
    found: list[type[OpweldError]] = [OpweldError]
    for cls in found:
        found.extend(cls.__subclasses__())
    return tuple(cls for cls in found if cls.__module__ == __name__)


def from_data(data: dict[str, Any]) -> OpweldError:
    """The error that `to_data` described; a class unknown here keeps its sentence."""
    classes = {cls.__name__: cls for cls in error_classes()}
    where = Where(**data["where"]) if data.get("where") else None
    cls = classes.get(data["class"], OpweldError)
    return cls(data["sentence"], where=where, next_step=data.get("next_step"))
