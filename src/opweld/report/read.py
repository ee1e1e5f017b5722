"""Reads the account of a run back from what `--json` wrote: a file of anybody's making."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from opweld.account import SCHEMA_VERSION, Account
from opweld.errors import UserError, Where
from opweld.judge.values import from_plain

HOW = "write one by `opweld optimize MODEL.py --json FILE`, or `opweld check`"


def read_account(path: Path) -> Account:
    """The account in a file.

    Raises:
        UserError: the file cannot be read, is no account, or is one of another version.
    """
    where = Where(str(path))
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot be read: {reason}", where=where, next_step=HOW) from error
    except (ValueError, RecursionError) as error:
        raise UserError("is no account of a run", where=where, next_step=HOW) from error
    if not isinstance(data, dict) or "schema_version" not in data:
        raise UserError("is no account of a run", where=where, next_step=HOW)
    if data["schema_version"] != SCHEMA_VERSION:
        raise UserError(
            f"is an account of version {str(data['schema_version'])[:20]}, not {SCHEMA_VERSION}",
            where=where,
            next_step="write it again with this version of opweld",
        )
    try:
        return from_plain(Account, _known(data))
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise UserError(
            f"is an account that does not hold what its version has: {str(error)[:120]}",
            where=where,
            next_step="write it again with this version of opweld",
        ) from error


def _known(data: dict[str, Any]) -> dict[str, Any]:
    """Without fields of a later release, which may add some."""
    names = {field.name for field in fields(Account)}
    return {name: value for name, value in data.items() if name in names}
