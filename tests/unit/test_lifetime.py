"""The start and the exit of child processes that import PyTorch."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from opweld.process.lifetime import without_garbage_collection

ENDING = """
import atexit, threading, time
from opweld.process.lifetime import exit_without_teardown

class WithFinalizer:
    def __del__(self):
        print("finalized", flush=True)

in_a_cycle = WithFinalizer()
in_a_cycle.itself = in_a_cycle
atexit.register(print, "registered")
threading.Thread(target=time.sleep, args=(60,)).start()
print("printed")
exit_without_teardown(3)
"""


def test_exit_handlers_run_and_finalizers_do_not() -> None:
    """A thread that goes on does not keep the process."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDING],
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ended.stdout == "printed\nregistered\n"
    assert (ended.returncode, ended.stderr) == (3, "")


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_as_before_after_an_import_that_fails(was_on: bool) -> None:
    on_here = gc.isenabled()
    (gc.enable if was_on else gc.disable)()
    try:
        with pytest.raises(ModuleNotFoundError), without_garbage_collection():
            assert not gc.isenabled()
            raise ModuleNotFoundError
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if on_here else gc.disable)()
