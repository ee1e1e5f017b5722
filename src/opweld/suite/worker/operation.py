"""Calls a function of the user's own on one unit: `python -m ...operation REQUEST ANSWER`."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any

from opweld.judge.process.processes import end_with_parent


def main(request: Path, answer: Path) -> None:
    """The function gets the unit's fields as a dictionary, and returns one or None."""
    asked = json.loads(request.read_text("utf-8"))
    end_with_parent()  # a worker that is killed ends nothing any more
    if os.getppid() != asked["parent"]:
        return  # it was killed before
    module, _, name = str(asked["do"]).partition(":")
    sys.path[:0] = [asked["folder"]]
    given: Any = getattr(import_module(module), name)(asked["unit"])
    if not isinstance(given, (dict, NoneType)):
        kind = type(given).__name__
        raise TypeError(f"it returned a {kind}, and not a dictionary or None")
    partial = answer.with_suffix(".partial")
    partial.write_text(json.dumps(given or {}), "utf-8")
    partial.rename(answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
