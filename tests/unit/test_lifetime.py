"""How processes of ours begin and end."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from opweld.process.lifetime import without_collections

ENDING = """
import atexit, threading, time
from opweld.process.lifetime import end

class Held:
    def __del__(self):
        print("taken apart", flush=True)

held = Held()
held.itself = held
atexit.register(print, "registered")
threading.Thread(target=time.sleep, args=(60,)).start()
print("printed")
end(3)
"""


def test_a_process_ends_with_what_is_registered_and_no_more() -> None:
    """A thread that goes on does not keep it."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=50
    )
    assert ended.stdout == "printed\nregistered\n"
    assert (ended.returncode, ended.stderr) == (3, "")


@pytest.mark.parametrize("was_on", [True, False])
def test_collections_are_as_before_after_an_import_that_fails(was_on: bool) -> None:
    on_here = gc.isenabled()
    (gc.enable if was_on else gc.disable)()
    try:
        with pytest.raises(ModuleNotFoundError), without_collections():
            assert not gc.isenabled()
            raise ModuleNotFoundError
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if on_here else gc.disable)()
