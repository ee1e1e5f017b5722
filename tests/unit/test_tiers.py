"""What decides about the tier of a test file: its imports, over any number of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiers import PACKAGES, ROOT, files_of, is_unit

TESTS = PACKAGES["tests"]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("import math\nfrom opweld.ir.graph import Node\n", True),
        ("import torch\n", False),
        ("from torch.nn import Module\n", False),
        ("def f():\n    import torch\n", False),
        ("import subprocess\n", False),
        ("from opweld.process.worker import serve\n", False),
        ("from opweld.process import worker\n", False),
        ("from opweld.pipeline import optimize\n", False),  # it asks compilers for their versions
        ("from opweld.delivery import publish\n", True),
        ("from opweld import driver\n", False),
        ("from opweld.driver import compile_file\n", False),
        ("from tests.emulation.emulate import Emulator\n", False),
        ("from tests import nvcc\n", False),
        ("from benchmarks.record import keep\n", False),
    ],
)
def test_imports_decide(tmp_path: Path, text: str, unit: bool) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert is_unit(path) is unit


def test_this_file_is_of_the_unit_tier() -> None:
    assert is_unit(Path(__file__))
    assert not is_unit(TESTS / "cpu" / "test_bad_input.py")


def test_a_package_is_imported_with_its_modules() -> None:
    package = ROOT / "src" / "opweld" / "plan"
    outer = ROOT / "src" / "opweld" / "__init__.py"
    assert files_of("opweld.plan.cost") == (outer, package / "__init__.py", package / "cost.py")
    assert files_of("numpy.linalg") == ()


def test_processes_are_refused_in_the_unit_tier(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--tier") != "unit":
        pytest.skip("only under --tier unit")
    import os  # whose popen is that of subprocess

    with pytest.raises(AssertionError, match="starts a process"):
        os.popen("true")
    with pytest.raises(ImportError):
        __import__("torch")
