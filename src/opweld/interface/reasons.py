"""Logs why calls of a ModelNew run the original, in the process that made it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from opweld.interface import logs
from opweld.interface.why import AT_ONCE, ORIGINAL, why_of


def log_reasons(module: Any, text: str, is_compiling: Callable[[], bool]) -> None:
    """From now on calls of `module` log to opweld.guards, each reason once, if that is logged now.

    `text` is the file that it was imported from. The file itself knows nothing of it: what its
    forward asks before it runs the original, functions that its class holds, is wrapped here.
    While `is_compiling` nothing is added to what is traced.
    """
    held = getattr(module, "_opweld", None)
    if held is None or not logs.GUARDS.isEnabledFor(logging.INFO):
        return
    model = type(module).__mro__[1].__name__
    names, said = list(inspect.signature(module.forward).parameters), set[str]()

    def say(reason: str) -> None:
        if reason not in said:
            said.add(reason)
            logs.GUARDS.info("%s: %s", model, reason)

    def original_runs(new: Any, values: tuple[Any, ...], _: object) -> str:
        return why_of(new, text, dict(zip(names, values, strict=True)))

    def at_once(meaning: str) -> Callable[..., str]:
        return lambda new, values, found: f"{ORIGINAL}: {meaning}" if found else ""

    reasons = {"tell": original_runs, **{name: at_once(said) for name, said in AT_ONCE.items()}}
    for name, reason in reasons.items():
        if hasattr(held, name):
            setattr(held, name, _followed(getattr(held, name), reason, say, is_compiling))


def _followed(
    asked: Callable[..., Any],
    reason: Callable[..., str],
    say: Callable[[str], None],
    is_compiling: Callable[[], bool],
) -> Callable[..., Any]:
    def follower(module: Any, *values: Any) -> Any:
        found = asked(module, *values)
        if not is_compiling() and (sentence := reason(module, values, found)):
            say(sentence)
        return found

    return follower
