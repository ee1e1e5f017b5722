"""How a command ends: what goes wrong becomes one sentence and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import typer

from opweld.errors import OpweldError

INTERRUPTED = 130


def exit_with(
    run: Callable[[], int], debug: bool, interrupted: str = "nothing was written"
) -> NoReturn:
    """Runs a command; what goes wrong becomes one sentence and an exit code.

    `interrupted` is what then is to be said of the work so far.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        code = run()
    except OpweldError as error:
        code = error.exit_code
        say(f"opweld: {error}", error if debug else None)
    except KeyboardInterrupt:
        code = INTERRUPTED
        say(f"opweld: interrupted; {interrupted}")
    except BrokenPipeError:  # who reads has seen enough, as `| head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:  # a bug of ours: the user still gets one sentence
        code = 1
        hint = "" if debug else " (--debug shows where)"
        say(
            f"opweld: internal error, {type(error).__name__}: {error}{hint}",
            error if debug else None,
        )
    raise typer.Exit(code)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def say(sentence: str, error: BaseException | None = None) -> None:
    """A sentence on standard error, behind the traceback of `error`."""
    if error:
        inner = getattr(error, "child_traceback", None)
        sys.stderr.write(inner or "".join(traceback.format_exception(error)))
    print(sentence, file=sys.stderr)
