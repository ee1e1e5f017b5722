"""The account of a run as plain data: the schema of `--json`, documented in docs/json.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opweld import __version__
from opweld.compiled import Compiled
from opweld.judge.values import Judgement, to_plain
from opweld.pipeline import Delivery

SCHEMA_VERSION = 1


def of_delivery(delivery: Delivery) -> dict[str, Any]:
    """The account of `opweld optimize`."""
    return {
        **_head(delivery.model, delivery.out, delivery.judgement),
        "target": delivery.compiled.target,
        "kernels": to_plain(delivery.kernels),
        **_compilation(delivery.compiled),
        "notes": list(delivery.notes),
    }


def of_judgement(model: Path, new: Path, judgement: Judgement) -> dict[str, Any]:
    """The account of `opweld check`, and of an optimisation whose result was refused."""
    return {
        **_head(model, new, judgement),
        "target": judgement.environment.device if judgement.environment else None,
        "kernels": to_plain(judgement.kernels),
        "plan": [],
        "rules": [],
        "library": [],
        "seconds": {},
        "notes": [],
    }


def _head(model: Path, new: Path, judgement: Judgement | None) -> dict[str, Any]:
    environment = judgement.environment if judgement else None
    return {
        "schema_version": SCHEMA_VERSION,
        "opweld": __version__,
        "model": str(model),
        "model_new": str(new),
        "device": environment.device_name if environment else None,
        "environment": to_plain(environment),
        "seed": judgement.seed if judgement else None,
        "verdict": to_plain(judgement.verdict) if judgement else None,
        "timing": to_plain(judgement.timing) if judgement else None,
        "timing_error": judgement.timing_error if judgement else None,
        "welded_calls": judgement.welded_calls if judgement else {},
    }


def _compilation(compiled: Compiled) -> dict[str, Any]:
    return {
        "plan": to_plain(compiled.plan_rows),
        "rules": [{"name": name, "numerics": numerics} for name, numerics in compiled.rules],
        "library": [{"op": op, "reason": reason} for op, reason in compiled.library],
        "seconds": compiled.seconds,
    }
