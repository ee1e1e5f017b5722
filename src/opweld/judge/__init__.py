"""The judge: whether a ModelNew does what the original does, and how fast, for any two files.

It imports nothing of the compiler. Both files run in a child process; this side needs no torch.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from opweld.errors import (
    ModelFileError,
    ModelOutOfMemory,
    ModelTimeout,
    OpweldError,
    Where,
    from_data,
)
from opweld.judge.process.exit_status import Ending, Limits, sentence
from opweld.judge.process.spawn import Child, Message, Server
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
from opweld.model_file import main_file, read_source
from opweld.sandbox import Sandbox

__all__ = [
    "Check",
    "Environment",
    "Errors",
    "Event",
    "Grade",
    "Judgement",
    "KernelTiming",
    "Samples",
    "Server",
    "Settings",
    "Timing",
    "Verdict",
    "check",
    "started",
]

# So many that the seed cannot be found by trying from one of the streams made of it.
_MAX_SEED = 2**53


def check(
    model_path: str | Path,
    new_path: str | Path,
    settings: Settings | None = None,
    on_progress: Callable[[Event], None] | None = None,
    server: Server | None = None,
    builds: str | Path = "",
) -> Judgement:
    """Judge ModelNew in `new_path` against Model in `model_path`, each in a process of its own.

    `new_path` is a file, or the folder of a package.

    With a `server`, these are started from that warm one, which is left running. `builds` is the
    folder for the kernels that the candidate builds; torch's own without one.

    Whatever the candidate does (crash, hang, exit, flood) is a failed verdict with one sentence.

    Raises:
        UserError: a file is missing or no Python, or the model file cannot serve as a measure.
    """
    settings, new_path = settings or Settings(), main_file(Path(new_path))
    for path in (model_path, new_path):
        read_source(Path(path))
    seed = secrets.randbelow(_MAX_SEED) if settings.seed is None else settings.seed

    def follow(message: Message) -> None:
        if on_progress and message["kind"] == "event":
            on_progress(from_plain(Event, message["value"]))

    request = _request(model_path, new_path, settings, seed, builds)
    folders = (builds,) if builds else ()
    own = contextlib.nullcontext(server) if server else _server(settings, folders)
    with own as warm:
        child = warm.run(request, settings.time_limit_s, settings.max_output_bytes, follow)
        sandbox = warm.sandbox.describe()
    judgement = _conclude(child, settings, seed, (Path(new_path), Path(model_path)))
    if judgement.environment is None:
        return judgement
    return replace(judgement, environment=replace(judgement.environment, sandbox=sandbox))


@contextlib.contextmanager
def started(settings: Settings | None) -> Iterator[Server | None]:
    """A server for `check` that gets ready while there is other work; None without settings.

    Raises:
        UserError: the sandbox that the settings require cannot be had.
    """
    if settings is None:
        yield None
        return
    with _server(settings, ()) as server:
        server.start()
        yield server


def sandbox_of(settings: Settings) -> Sandbox:
    """The sandbox that the settings ask for."""
    return Sandbox(settings.sandbox, settings.pass_env)


def _server(settings: Settings, writable: tuple[str | Path, ...]) -> Server:
    return Server(sandbox=sandbox_of(settings), writable=writable)


def _request(
    model_path: Any, new_path: Any, settings: Settings, seed: int, builds: str | Path
) -> str:
    data = {
        "model_path": str(model_path),
        "new_path": str(new_path),
        "settings": to_plain(settings),
        "seed": seed,
        "builds": str(builds),
    }
    return json.dumps(data)


def _conclude(child: Child, settings: Settings, seed: int, paths: tuple[Path, ...]) -> Judgement:
    if child.outcome == "answered":
        return _answer(child)
    phase = child.last("phase") or {"who": "the judge", "what": "starting"}
    limits = Limits(settings.time_limit_s, settings.max_output_bytes)
    ending = Ending(child.outcome, child.status, child.stderr)
    why = sentence(_who(phase["who"], child), phase["what"], ending, limits, paths)
    partial = child.last("partial")
    if partial and phase["who"] == "torch.compile":
        # the candidate was judged already, and is not what failed
        return replace(from_plain(Judgement, partial), timing_error=why)
    if phase["who"] == "the original":
        _refuse_original(child, why, Where(str(paths[-1])))
    verdict = Verdict(False, "F", (), why)
    return Judgement(verdict, None, (), None, seed)


def _refuse_original(child: Child, why: str, where: Where) -> None:
    """Raise where the original ended its process, flooded its output or did not come to an end.

    When something of the candidate has run, it may have used up the time.
    """
    if child.outcome == "ended" and child.status == -signal.SIGKILL:
        raise ModelOutOfMemory(why, next_step="try a smaller --batch")
    if child.outcome == "ended":
        step = "a model file must not end the process or crash it"
        raise ModelFileError(why, where=where, next_step=step)
    if child.outcome == "flooded":
        raise ModelFileError(why, where=where, next_step="let it print less")
    phases = (message["value"]["who"] for message in child.messages if message["kind"] == "phase")
    if "ModelNew" not in phases:
        step = "look for an endless loop, or allow more with --time-limit SECONDS"
        raise ModelTimeout(why, where=where, next_step=step)


def _who(who: str, child: Child) -> str:
    """Whose end it is: ModelNew's own is told by the referee, so here it is the referee's."""
    if child.outcome == "ended" and who == "ModelNew":
        return "the process that judges, waiting for ModelNew,"
    return who


def _answer(child: Child) -> Judgement:
    error = child.last("error")
    if error is not None:
        found: OpweldError = from_data(error)
        raise found
    return from_plain(Judgement, child.last("done"))
