"""Packages that a suite can do without, imported where they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from opweld.errors import UserError, Where


def optional(
    module: str, user: str, extra: str, instead: str = "", where: Where | None = None
) -> Any:
    """The module; `user` is what needs it, `extra` the one of opweld's that has it, `instead` what
    does without.

    Raises:
        UserError: it is not installed.
    """
    package = module.partition(".")[0]
    try:
        import_module(package)
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{user} needs {package}, which is not installed",
            where=where,
            next_step=f"pip install 'opweld[{extra}]'" + (f", or {instead}" if instead else ""),
        ) from error
