"""Imports a candidate, no more: `python -m opweld.judge.build.import_only NEW.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from opweld.judge.load import import_new_file
from opweld.process.lifetime import exit_without_teardown


def main(new: str) -> None:
    sys.dont_write_bytecode = True
    sys.argv = ["candidate"]
    import_new_file(Path(new))


if __name__ == "__main__":
    main(sys.argv[1])
    exit_without_teardown()
