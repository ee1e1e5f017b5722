"""Survivors that the judge is right to let pass, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Explained:
    """Survivors of these rules, in these models (or in any), whose old line matches."""

    reason: str
    rules: tuple[str, ...]
    line: str
    models: tuple[str, ...] = ()


EXPLAINED: tuple[Explained, ...] = ()


def explanation(case: Mapping[str, Any]) -> str | None:
    """Why a mutant of an account that survived does; None for all others, and for holes."""
    if case["outcome"] != "survived":
        return None
    for row in EXPLAINED:
        of_model = not row.models or case["model"] in row.models
        lines = [line for line in case["difference"] if line.startswith("- ")]
        if of_model and case["rule"] in row.rules and re.search(row.line, lines[0]):
            return row.reason
    return None
