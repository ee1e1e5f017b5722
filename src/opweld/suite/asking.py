"""How the work of a suite is asked for: settings and options as plain data, and back."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import fields
from pathlib import Path
from typing import Any

from opweld import __version__
from opweld.errors import UserError
from opweld.judge.values import Settings, from_plain, to_plain
from opweld.options import Options
from opweld.suite.values import CHECK, OPERATIONS, OPTIMIZE, TUNE, Data, Task, Work
from opweld.tune.values import Search

# What changes how long one waits, or what is kept from whom, but no result.
_NO_INPUTS = (
    "time_limit_s",
    "sandbox",
    "pass_env",
    "max_output_bytes",
    "debug",
    "log",
    "dump",
    "folder",
)
# A judgement has several children, each with the time limit; an optimisation several judgements.
_CHILDREN, _JUDGEMENTS, _SPARE_S = 2.0, 8.0, 120.0


def of_check(settings: Settings, builds_ahead: bool = False) -> Work:
    """A check of each pair."""
    limit_s = _CHILDREN * settings.time_limit_s + _SPARE_S
    asked = {"settings": to_plain(settings)}
    return Work(CHECK, asked, limit_s, settings.measure, builds_ahead)


def of_optimize(options: Options, builds_ahead: bool = False) -> Work:
    """An optimisation of each model."""
    limit_s = _JUDGEMENTS * options.time_limit_s + _SPARE_S
    return Work(OPTIMIZE, {"options": _plain(options)}, limit_s, options.check, builds_ahead)


def of_tune(options: Options, search: Search) -> Work:
    """A search for schedules of each model."""
    asked = {"options": _plain(options), "search": to_plain(search)}
    return Work(TUNE, asked, search.limit_s + _SPARE_S)


def of_function(name: str, settings: Settings) -> Work:
    """A function of one's own, "module:function", which is called in a process for each unit.

    The module is found in the current folder, or where Python finds others.

    Raises:
        UserError: the name is not of that form.
    """
    module, colon, function = name.partition(":")
    parts = (*module.split("."), function)
    if not colon or not all(part.isidentifier() for part in parts):
        raise UserError(
            f"there is no operation {name!r}",
            next_step=f"use {', '.join(OPERATIONS)}, or module:function of your own",
        )
    limit_s = settings.time_limit_s + _SPARE_S
    asked = {"settings": to_plain(settings), "place": {"folder": str(Path.cwd())}}
    return Work(name, asked, limit_s, settings.measure)


def settings_in(work: Work) -> Settings:
    return from_plain(Settings, work.asked["settings"])


def options_in(work: Work) -> Options:
    given = work.asked["options"]
    choices: dict[str, Any] = {**given, "exclude": frozenset(given["exclude"])}
    for name in ("autocast", "dtype", "dynamic", "pass_env"):
        choices[name] = tuple(given[name])
    return Options(**choices)


def search_in(work: Work) -> Search:
    return from_plain(Search, work.asked["search"])


def versions() -> dict[str, str]:
    """Of the driver's side; a result has those of where it was judged."""
    return {"opweld": __version__, "python": platform.python_version()}


def digest_of(work: Work) -> str:
    """Of everything in it that can change a result."""
    kept = {
        part: {name: value for name, value in given.items() if name not in _NO_INPUTS}
        for part, given in work.asked.items()
    }
    text = json.dumps([work.do, kept], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(options: Options) -> Data:
    given = {item.name: getattr(options, item.name) for item in fields(options)}
    return {**to_plain(given), "exclude": sorted(options.exclude)}


def of_unit(task: Task) -> Data:
    """What a function of one's own is called with, and its name."""
    folder = task.work.asked["place"]["folder"]
    return {"do": task.work.do, "folder": folder, "unit": to_plain(task.unit)}
