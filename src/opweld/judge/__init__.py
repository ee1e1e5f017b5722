"""The judge: whether a ModelNew does what the original does, and how fast, for any two files.

It imports nothing of the compiler. Both files run in a child process; this side needs no torch.
"""

from __future__ import annotations

import ast
import json
import re
import secrets
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from opweld.errors import ModelFileError, ModelOutOfMemory, OpweldError, Where, from_data
from opweld.judge.spawn import Child, Message, run_child
from opweld.judge.values import (
    Check,
    Environment,
    Errors,
    Event,
    Grade,
    Judgement,
    KernelTiming,
    Samples,
    Settings,
    Timing,
    Verdict,
    from_plain,
    to_plain,
)

__all__ = [
    "Check",
    "Environment",
    "Errors",
    "Event",
    "Grade",
    "Judgement",
    "KernelTiming",
    "Samples",
    "Settings",
    "Timing",
    "Verdict",
    "check",
]

_MAX_SEED = 2**31
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def check(
    model_path: str | Path,
    new_path: str | Path,
    settings: Settings | None = None,
    on_progress: Callable[[Event], None] | None = None,
) -> Judgement:
    """Judge ModelNew in `new_path` against Model in `model_path`, in a child process.

    Whatever the candidate does (crash, hang, exit, flood) is a failed verdict with one sentence.

    Raises:
        UserError: a file is missing or no Python, or the model file cannot serve as a measure.
    """
    settings = settings or Settings()
    for path in (model_path, new_path):
        _require_python(Path(path))
    seed = secrets.randbelow(_MAX_SEED) if settings.seed is None else settings.seed

    def follow(message: Message) -> None:
        if on_progress and message["kind"] == "event":
            on_progress(from_plain(Event, message["value"]))

    with tempfile.TemporaryDirectory(prefix="opweld-judge-") as folder:
        request = Path(folder) / "request.json"
        request.write_text(_request(model_path, new_path, settings, seed), encoding="utf-8")
        child = run_child(request, settings.time_limit_s, settings.max_output_bytes, follow)
    return _conclude(child, settings, seed, (Path(new_path), Path(model_path)))


def _require_python(path: Path) -> None:
    """One sentence for each way of not being a Python file."""
    where = Where(str(path))
    try:
        ast.parse(path.read_bytes(), filename=str(path))
    except FileNotFoundError:
        raise ModelFileError("there is no such file", where=where) from None
    except IsADirectoryError:
        raise ModelFileError("it is a folder", where=where, next_step="name a file") from None
    except OSError as error:
        raise ModelFileError(f"cannot be read: {error.strerror}", where=where) from None
    except SyntaxError as error:
        where = Where(str(path), error.lineno, error.text)
        raise ModelFileError(f"syntax error: {error.msg}", where=where) from None
    except ValueError as error:
        raise ModelFileError(f"it is not Python text: {error}", where=where) from None


def _request(model_path: Any, new_path: Any, settings: Settings, seed: int) -> str:
    data = {
        "model_path": str(model_path),
        "new_path": str(new_path),
        "settings": to_plain(settings),
        "seed": seed,
    }
    return json.dumps(data)


def _conclude(child: Child, settings: Settings, seed: int, paths: tuple[Path, ...]) -> Judgement:
    if child.outcome == "answered":
        return _answer(child)
    phase = child.last("phase") or {"who": "the judge", "what": "starting"}
    sentence = _sentence(child, settings, phase, paths)
    partial = child.last("partial")
    if partial and phase["who"] == "torch.compile":
        # the candidate was judged already, and is not what failed
        return replace(from_plain(Judgement, partial), timing_error=sentence)
    if child.status == -signal.SIGKILL and phase["who"] == "the original":
        raise ModelOutOfMemory(sentence, next_step="try a smaller --batch")
    verdict = Verdict(False, "F", (), sentence)
    return Judgement(verdict, None, (), None, seed)


def _answer(child: Child) -> Judgement:
    error = child.last("error")
    if error is not None:
        found: OpweldError = from_data(error)
        raise found
    return from_plain(Judgement, child.last("done"))


def _sentence(child: Child, settings: Settings, phase: Any, paths: tuple[Path, ...]) -> str:
    """Who did what, where, in which step."""
    where = _last_place(child.stderr.decode(errors="replace"), paths)
    place = f" at {where}" if where else ""
    step = f" ({phase['what']})"
    if child.outcome == "timed out":
        return f"{phase['who']} did not return within {settings.time_limit_s:g} s{place}{step}"
    if child.outcome == "flooded":
        limit = settings.max_output_bytes / 2**20
        return f"{phase['who']} printed more than {limit:g} MiB{step}"
    if child.status == -signal.SIGKILL:
        return f"{phase['who']} was killed, probably for lack of memory{step}"
    if child.status is not None and child.status < 0:
        return f"{phase['who']} crashed with {signal.Signals(-child.status).name}{place}{step}"
    last = _last_line(child.stderr)
    return f"{phase['who']} ended the process with exit code {child.status}{step}{last}"


def _last_place(stderr: str, paths: tuple[Path, ...]) -> str | None:
    """The innermost frame in one of the files, from the stack that the child printed last."""
    stack = stderr.rpartition("most recent call first")[2]
    names = {str(path.absolute()): path.name for path in paths}
    for frame in _FRAME.finditer(stack):
        if frame["file"] in names:
            return f"{names[frame['file']]}:{frame['line']}"
    return None


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""
