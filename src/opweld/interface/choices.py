"""What several commands do with their choices: begin, refuse what there is not, give examples."""

from __future__ import annotations

from opweld.errors import UnsupportedPrecision, UserError
from opweld.interface import logs
from opweld.interface.exits import say
from opweld.judge.values import CALL, JUDGED_MODES, PRECISIONS, SCOPES
from opweld.options import Options


def examples(*commands: str) -> str:
    """The end of a command's help; the sign in front keeps its lines apart."""
    heading = "Examples:" if len(commands) > 1 else "Example:"
    return "\n".join(("\b", heading, *(f"  opweld {command}" for command in commands)))


def begin(options: Options) -> None:
    """Shows what is to be logged, and says once what the sandbox of this machine cannot prevent.

    Raises:
        SandboxMissing: it is required, and lacks a part.
    """
    logs.show(options)
    options.chosen_sandbox.require()
    if warning := options.chosen_sandbox.warning():
        say(f"opweld: warning: {warning}")


def judged_mode(mode: str | None) -> str | None:
    if mode not in (None, *JUDGED_MODES):
        modes = ", ".join(JUDGED_MODES)
        raise UserError(f"there is no mode {mode!r} to judge in", next_step=f"use one of {modes}")
    return mode


def scope_of(scope: str | None) -> str:
    if scope not in (None, *SCOPES):
        raise UserError(f"there is no scope {scope!r}", next_step=f"use {' or '.join(SCOPES)}")
    return scope or CALL


def accepted(precision: str) -> str:
    if precision not in PRECISIONS:
        raise UnsupportedPrecision(
            f"there is no precision {precision!r}",
            next_step=f"use one of {', '.join(PRECISIONS)}",
        )
    return precision
