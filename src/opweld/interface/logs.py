"""Standard logging under the name opweld, and `OPWELD_LOG=info,plan,guards`, which shows it.

`opweld` has the stages and their seconds, `opweld.plan` the plans, `opweld.guards` what a ModelNew
asks of each call before it runs its kernels and, in the process that made it, why a call of it ran
the original. Nothing is shown unless a program configures logging, or the variable is set.
"""

from __future__ import annotations

import logging
import sys
from functools import partial

from opweld.compiled import Compiled
from opweld.interface.why import guards_of
from opweld.options import LOGS, Options, listed

_ROOT = "opweld"
LOG, PLAN, GUARDS = map(logging.getLogger, (_ROOT, f"{_ROOT}.plan", f"{_ROOT}.guards"))
_BY_KIND = dict(zip(LOGS, (LOG, PLAN, GUARDS), strict=True))


def show(options: Options) -> None:
    """Shows on standard error what the options name; a second time it does nothing."""
    for kind in listed(options.log) or ():
        logger = _BY_KIND[kind]
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
