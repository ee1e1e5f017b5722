"""Where opweld cannot run it says so; where it can, it starts without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[2] / "src")
# As there, modules of Unix are not to be had.
ELSEWHERE = """
import sys
sys.platform = {system!r}
sys.modules["fcntl"] = sys.modules["resource"] = None
import runpy
runpy.run_module("opweld", run_name="__main__")
"""


def python(text: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.run(
        [sys.executable, "-c", text], env=environ, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("system", "advice"),
    [
        ("win32", "use WSL2: `wsl --install` in PowerShell, then in its Ubuntu `make demo`"),
        ("darwin", "use a Linux machine"),
    ],
)
def test_the_command_ends_with_a_sentence(system: str, advice: str) -> None:
    done = python(ELSEWHERE.format(system=system))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"opweld: opweld runs on Linux only, not on {system}; {advice}")
    assert done.stderr.count("\n") == 1


def test_a_name_of_the_package_is_refused_there() -> None:
    done = python("import sys; sys.platform = 'win32'\nimport opweld\nopweld.optimize")
    assert done.stderr.splitlines()[-1].startswith("ImportError: opweld runs on Linux only")


def test_pytests_plugin_harms_no_other_project_there() -> None:
    lines = (
        "import pytest, sys; sys.platform = 'win32'",
        "sys.modules['fcntl'] = sys.modules['resource'] = None",
        "import opweld.interface.pytest_plugin",
    )
    done = python("\n".join(lines))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("import opweld", {"torch", "numpy", "rich", "typer"}),
        ("import opweld; opweld.UserError", {"torch", "numpy"}),
        ("import opweld; opweld.check", {"torch", "numpy"}),
        ("import opweld.interface.cli", {"torch", "numpy"}),
    ],
)
def test_it_starts_without_torch(text: str, absent: set[str]) -> None:
    done = python(f"{text}\nimport sys\nprint(*{absent!r} & {{*sys.modules}})")
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_every_public_name_is_there() -> None:
    done = python("import opweld\nfor name in opweld.__all__: getattr(opweld, name)")
    assert done.returncode == 0, done.stderr
