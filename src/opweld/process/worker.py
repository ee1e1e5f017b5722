"""Compiles a model file in a child process: the file is code, and may hang, crash or print.

The parent (`compile_in_child`) needs no torch. The child (`python -m opweld.process.worker`) writes
its result as JSON; an error that opweld explains comes back as data and is raised in the parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Protocol

from opweld import compiled, errors
from opweld.compiled import Compiled
from opweld.errors import (
    InternalError,
    ModelFileError,
    ModelOutOfMemory,
    ModelTimeout,
    UserError,
    Where,
)
from opweld.model_file import explain, read_source, user_line
from opweld.options import Options
from opweld.process.child import Finished, run_child
from opweld.process.lifetime import exit_without_teardown, without_garbage_collection

COMMAND = (sys.executable, "-P", "-m", "opweld.process.worker")
USE_LESS_MEMORY = "use --batch N for smaller inputs"


class CompileFile(Protocol):
    def __call__(
        self, path: Path, options: Options, on_stage: Callable[[str], None]
    ) -> Compiled: ...


def compile_in_child(
    path: Path,
    options: Options,
    on_stage: Callable[[str], None] = lambda stage: None,
    command: Sequence[str] = COMMAND,
) -> Compiled:
    """Compiles the model file at `path` in a child process.

    Raises:
        UserError: the file is bad, hangs, crashes, or cannot be captured.
        InternalError: the compiler itself failed; its `traceback` attribute has the place.
    """
    read_source(path)
    with tempfile.TemporaryDirectory(prefix="opweld-") as folder:
        request, answer = Path(folder, "request.json"), Path(folder, "answer.json")
        request.write_text(json.dumps(request_of(path, options)), "utf-8")
        finished = run_child(
            [*command, str(request), str(answer)],
            time_limit_s=options.time_limit_s,
            environ=child_environment(),
            on_event=on_stage,
            on_output=sys.stderr.buffer.write if options.debug else None,
            sandbox=options.chosen_sandbox,
            writable=(folder, *filter(None, [options.dump])),
        )
        if finished.timed_out or finished.status != 0 or not answer.exists():
            raise died(path, options, finished)
        return compiled.from_data(read_answer(answer)["compiled"])


def child_environment() -> dict[str, str]:
    """This process's environment, such that the child finds the same opweld."""
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def request_of(path: Path, options: Options) -> dict[str, Any]:
    """What a child is asked, as plain data."""
    choices = {item.name: getattr(options, item.name) for item in fields(options)}
    return {"path": str(path), "options": {**choices, "exclude": sorted(options.exclude)}}


def read_answer(answer: Path) -> dict[str, Any]:
    """A child's answer; an error that it sent instead is raised."""
    data: dict[str, Any] = json.loads(answer.read_text("utf-8"))
    if "error" not in data:
        return data
    error = errors.from_data(data["error"])
    error.child_traceback = data["traceback"]
    raise error


def died(path: Path, options: Options, finished: Finished) -> errors.UserError:
    """The sentence for a child that gave no answer."""
    place = Where(str(path))
    if finished.timed_out:
        return ModelTimeout(
            f"did not return within {options.time_limit_s:g} s while it was captured",
            where=place,
            next_step="look for an endless loop, or allow more with --time-limit SECONDS",
        )
    if finished.status == -9:
        return ModelOutOfMemory(
            "was killed while it was captured, most likely for want of memory",
            where=place,
            next_step=USE_LESS_MEMORY,
        )
    said = f" after printing {finished.last_line[:200]!r}" if finished.last_line else ""
    return ModelFileError(
        f"the process that runs the model {finished.ending()} before it was captured{said}",
        where=place,
        next_step="a model file must not end the process or crash it",
    )


def serve(compile_file: CompileFile, request: Path, answer: Path) -> None:
    """The child's side: compiles, and answers."""
    path, options = asked_of(json.loads(request.read_text("utf-8")))
    answer_with(
        answer, path, lambda: {"compiled": compile_file(path, options, send_event).to_data()}
    )


def asked_of(request: dict[str, Any]) -> tuple[Path, Options]:
    """The model file and the options of a request."""
    given = request["options"]
    choices = {**given, "exclude": frozenset(given["exclude"])}
    for name in ("autocast", "dtype", "dynamic", "pass_env"):
        choices[name] = tuple(given[name])
    return Path(request["path"]), Options(**choices)


def answer_with(answer: Path, path: Path, work: Callable[[], dict[str, Any]]) -> None:
    """Writes what `work` on the model file gives, or its error, whole or not at all."""
    partial = answer.with_suffix(".partial")
    partial.write_text(json.dumps(_reply(path, work)), "utf-8")
    partial.rename(answer)


def _reply(path: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except errors.OpweldError as error:
        return _error(_placed(path, error), error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the model's code may raise anything
        return _error(_explain(path, error), error)


def _placed(path: Path, error: errors.OpweldError) -> errors.OpweldError:
    """With the model file in front, by the name that the user gave it."""
    where = error.where or Where()
    if where.file in (None, path.name, str(path.resolve())):
        error.where = replace(where, file=str(path))
    return error


def _error(explained: errors.OpweldError, cause: BaseException) -> dict[str, Any]:
    text = "".join(traceback.format_exception(cause))
    return {"error": explained.to_data(), "traceback": text}


def _explain(path: Path, error: BaseException) -> errors.OpweldError:
    explained = explain(path, "the model", error)
    if user_line(path, error).line is not None or not isinstance(explained, ModelFileError):
        return explained
    return InternalError(
        f"opweld itself failed with {type(error).__name__}: {error}",
        where=Where(str(path)),
        next_step="see the place with --debug, and please report it",
    )


def send_event(stage: str) -> None:
    """Tells the parent, from a child that `run_child` started."""
    os.write(int(os.environ["OPWELD_EVENTS"]), f"{stage}\n".encode())


def _die_first_when_memory_ends() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def main() -> None:
    _die_first_when_memory_ends()
    serve(_driver, Path(sys.argv[1]), Path(sys.argv[2]))


def _driver(path: Path, options: Options, on_stage: Callable[[str], None]) -> Compiled:
    try:
        with without_garbage_collection():
            from opweld import driver  # noqa: PLC0415  the parent must not import torch
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name} is not installed", next_step="see what is missing with `opweld doctor`"
        ) from error
    return driver.compile_file(path, options, on_stage)


if __name__ == "__main__":
    main()
    exit_without_teardown()
