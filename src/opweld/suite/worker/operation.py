"""Calls a function of the user's own on one unit: `python -m ...operation REQUEST ANSWER`."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(request: Path, answer: Path) -> None:
    """The function gets the unit's fields as a dictionary, and returns one or None."""
    asked = json.loads(request.read_text("utf-8"))
    module, _, name = str(asked["do"]).partition(":")
    sys.path[:0] = [asked["folder"]]
    given: dict[str, Any] | None = getattr(import_module(module), name)(asked["unit"])
    partial = answer.with_suffix(".partial")
    partial.write_text(json.dumps(given or {}), "utf-8")
    partial.rename(answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
