"""Runs a command in a sandbox: `python -m opweld.sandbox.launch POLICY COMMAND...`."""

from __future__ import annotations

import os
import sys

from opweld.sandbox import enter, from_json


def main() -> None:
    """The command takes this process's place, and keeps its descriptors that are inherited."""
    policy, command = from_json(sys.argv[1]), sys.argv[2:]
    enter(policy, protected=(os.getppid(),))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
