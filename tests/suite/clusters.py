"""A Ray cluster of this machine for tests, started as a suite starts its own."""

from __future__ import annotations

import importlib.util
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.suite.stores import ROOT

NO_RAY = "Ray is not installed: pip install 'opweld[ray]'"
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason=NO_RAY)

_KEEP = """
import sys
from opweld.suite.engines.ray import RayEngine
engine = RayEngine("cpu", exclusive=False)
print(engine.address, flush=True)
sys.stdin.read()
engine.close()
"""


@contextmanager
def cluster() -> Iterator[tuple[str, int]]:
    """Its address, and the process that it ends with; what is started meanwhile may join it."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    keeper = subprocess.Popen(
        [sys.executable, "-c", _KEEP],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert keeper.stdout is not None and keeper.stdin is not None
        yield keeper.stdout.readline().strip(), keeper.pid
        keeper.stdin.close()
        keeper.wait(60)
    finally:
        keeper.kill()
        keeper.wait()
        del os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"]
