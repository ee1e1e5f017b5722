"""Standard logging under the name opweld, and `OPWELD_LOG=info,plan,guards`, which shows it.

`opweld` has the stages and their seconds, `opweld.plan` the plans, `opweld.guards` what a ModelNew
asks of each call before it runs its kernels and, in the process that made it, why a call of it ran
the original. Nothing is shown unless a program configures logging, or the variable is set.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from functools import partial

from opweld.compiled import Compiled
from opweld.errors import UserError
from opweld.interface.why import guards_of

VARIABLE = "OPWELD_LOG"
NAMES = {"info": "opweld", "plan": "opweld.plan", "guards": "opweld.guards"}
LOG, PLAN, GUARDS = map(logging.getLogger, NAMES.values())


def show(environ: Mapping[str, str] = os.environ) -> None:
    """Shows on standard error what the environment variable names; a second time it does nothing.

    Raises:
        UserError: there is no such name.
    """
    for kind in filter(None, (each.strip() for each in environ.get(VARIABLE, "").split(","))):
        if kind not in NAMES:
            listed = ", ".join(NAMES)
            raise UserError(f"{VARIABLE} cannot be {kind!r}", next_step=f"use some of {listed}")
        logger = logging.getLogger(NAMES[kind])
        if not any(isinstance(each, _Shown) for each in logger.handlers):
            handler = _Shown()
            handler.addFilter(partial(_is_of, logger.name))
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)


def _is_of(name: str, record: logging.LogRecord) -> bool:
    return record.name == name


class _Shown(logging.Handler):
    """On what is standard error by then, with the logger's name in front."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.name}: {record.getMessage()}", file=sys.stderr)


def tell(compiled: Compiled) -> None:
    """What came of a compilation."""
    spent = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in compiled.seconds.items())
    LOG.info("compiled for %s: %s", compiled.target, spent)
    PLAN.info("%s", compiled.stages.get("plan", "").rstrip("\n"))
    if GUARDS.isEnabledFor(logging.INFO):
        for guard, clauses in guards_of(compiled.text).items():
            GUARDS.info("%s: %s", guard, " and ".join(clauses))
