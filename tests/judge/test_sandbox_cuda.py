"""The sandbox beside a GPU, whose driver is a library made here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opweld import sandbox
from opweld.sandbox import Sandbox

# What the driver says to a process inside, and to one outside.
DRIVERS = {
    "none": None,
    "starts": (0, 0),
    "does not start inside": (999, 0),
    "starts nowhere": (100, 100),
}
IS_OFF = ("auto", "does not start inside"), *(("off", driver) for driver in DRIVERS)
DRIVER = """
#include <stdlib.h>
int cuInit(unsigned flags) { return getenv("TMPDIR") ? INSIDE : OUTSIDE; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = (void*)1, 0; }
int cuCtxSetCurrent(void* context) { return context == 0; }
int cuMemAlloc_v2(void** memory, size_t bytes) { return bytes == 0; }
"""


@pytest.mark.parametrize("mode", ["auto", "required", "off"])
@pytest.mark.parametrize("driver", DRIVERS)
def test_beside_a_gpu_it_is_used_where_cuda_starts_inside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str, driver: str
) -> None:
    answers = DRIVERS[driver]
    monkeypatch.setattr("opweld.sandbox.has_gpu_driver", lambda: answers is not None)
    if answers:
        text = DRIVER.replace("INSIDE", str(answers[0])).replace("OUTSIDE", str(answers[1]))
        (tmp_path / "driver.c").write_text(text)
        library = str(tmp_path / "libcuda.so.1")
        subprocess.run(["gcc", "-shared", "-fPIC", str(tmp_path / "driver.c"), "-o", library])
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.delenv("TMPDIR", raising=False)
    sandbox._keeps_cuda_out.cache_clear()
    try:
        chosen = Sandbox(mode)
        assert chosen.is_on == ((mode, driver) not in IS_OFF)
        said = chosen.warning() or ""
        assert ("--sandbox required" in said) == (mode == "auto" and not chosen.is_on)
    finally:
        sandbox._keeps_cuda_out.cache_clear()
