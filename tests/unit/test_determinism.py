"""The same model gives the same bytes in two processes with different hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
from opweld.driver import compile_file
from opweld.options import Options

for name, target in zip(sys.argv[1::2], sys.argv[2::2]):
    compiled = compile_file(Path(name), Options(target=target, batch=4), lambda stage: None)
    for stage, text in sorted(compiled.stages.items()):
        print(f"== {name} {target} {stage}")
        print(text)
    print(compiled.text, compiled.plan_rows, compiled.rules, compiled.library)
"""


def everything(hash_seed: str, *models: str) -> str:
    """All texts of all stages of these examples for both kinds of target."""
    pairs = [arg for model in models for target in ("cpu", "sm_90a") for arg in (model, target)]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *pairs],
        cwd=ROOT / "examples",
        env=environ,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "models", [pytest.param(("gelu.py", "chain_bf16.py"), marks=pytest.mark.slow), ("chain.py",)]
)
def test_two_processes_print_the_same_bytes(models: tuple[str, ...]) -> None:
    first, second = everything("1", *models), everything("2", *models)
    assert first == second
    for model in models:
        for target in ("cpu", "sm_90a"):
            for stage in ("graph", "plan", "kernel", "source", "emit"):
                assert f"== {model} {target} {stage}\n" in first
    assert str(ROOT) not in first and "/tmp/" not in first
