"""The command line, as `opweld` and as `python -m opweld`."""

from __future__ import annotations

import sys

from opweld import unsupported_platform


def main() -> None:
    """Ends with one sentence where opweld cannot run: what it imports there is not to be had."""
    if sentence := unsupported_platform():
        print(f"opweld: {sentence}", file=sys.stderr)
        sys.exit(2)
    from opweld.interface import cli  # noqa: PLC0415

    cli.main()


if __name__ == "__main__":
    main()
