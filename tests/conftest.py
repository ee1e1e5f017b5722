"""Shared by all tests: which of them this machine can run."""

from __future__ import annotations

import fnmatch
import functools
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from tests.sampled import is_left_out
from tests.tiers import TIERS, is_unit

# Test processes side by side share the cores: threads beyond them take ten times as long, waiting.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    cores = len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // int(workers))))

# Inductor compiles a few kernels here, and precompiled headers pay from many on.
os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")

# PyTorch's headers are most of what an emitted file takes to compile. Inductor wants no space here.
compiler = str(Path(__file__).parent / "precompiled" / "g++")
if shutil.which("g++") and shutil.which("flock") and " " not in compiler:
    os.environ.setdefault("CXX", compiler)
    # Where it finds them in processes whose folder of temporary files is their own, too.
    os.environ.setdefault("OPWELD_PRECOMPILED", tempfile.gettempdir())

# A shell starts what runs behind it deaf to interrupts, and so would be the tools under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples at every run; OPWELD_FUZZ=long draws new ones, and many more.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.register_profile("long", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("OPWELD_FUZZ", "fixed"))


@functools.cache
def has_gpu() -> bool:
    """Whether the driver sees a device; asked of nvidia-smi, so that collecting needs no torch."""
    if shutil.which("nvidia-smi") is None:
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60).returncode == 0


def slow_patterns() -> list[str]:
    """Of node ids, from slow.txt."""
    lines = Path(__file__).with_name("slow.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, help="only the tests of one tier (tests/tiers.py)")
    parser.addoption(
        "--share",
        type=int,
        help="of tests that take long only this share, any number (tests/sampled.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """What a unit test imports late must not be torch either."""
    if config.getoption("--tier") == "unit":
        sys.modules["torch"] = None  # type: ignore[assignment]  # so `import torch` raises


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of other tiers are not even imported."""
    tier = config.getoption("--tier")
    if tier is None:
        return None
    if collection_path.match("test_*.py"):
        return is_unit(collection_path) != (tier == "unit") or None
    shared = collection_path / "conftest.py"
    outer = collection_path in Path(__file__).parents
    return (tier == "unit" and not outer and shared.exists() and not is_unit(shared)) or None


@pytest.fixture(scope="session", autouse=True)
def _no_process_in_the_unit_tier(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--tier") == "unit":
            patch.setattr(subprocess.Popen, "__init__", _refuse_process)
        yield


def _refuse_process(*_: object, **__: object) -> None:
    raise AssertionError("a test of the unit tier starts a process: see tests/tiers.py")


def _of_tier(items: list[pytest.Item], config: pytest.Config) -> None:
    tier = config.getoption("--tier")
    if tier not in ("compile", "device"):
        return
    kept, left = [], []
    for item in items:
        on_device = item.get_closest_marker("gpu") is not None
        (kept if on_device == (tier == "device") else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def _of_share(items: list[pytest.Item], config: pytest.Config) -> None:
    share = config.getoption("--share")
    if share is None:
        return
    left = [item for item in items if is_left_out(item.nodeid, share)]
    items[:] = [item for item in items if not is_left_out(item.nodeid, share)]
    config.hook.pytest_deselected(items=left)


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    _of_tier(items, config)
    _of_share(items, config)
    skip = pytest.mark.skip(reason="needs a CUDA device")
    slow = re.compile("|".join(map(fnmatch.translate, slow_patterns())))
    for item in items:
        if slow.match(item.nodeid):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("gpu") and not has_gpu():
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Tests and modules stay to the end: the garbage collector need not look at them again."""
    gc.collect()
    gc.freeze()
