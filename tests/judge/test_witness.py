"""What is another object, or another state, in a process that was forked."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from opweld.judge.process.environment import global_settings
from opweld.judge.process.memory import ProcessMemory
from opweld.judge.process.protocol import Files
from opweld.judge.verify import run
from opweld.judge.witness.objects import Fixed, Recorded, recorded
from opweld.judge.witness.process_state import changes, kernel_state, process_state
from opweld.judge.witness.watch import Watch


class Held:
    __slots__ = ("inner",)

    def __init__(self, inner: object) -> None:
        self.inner = inner


class OtherHeld(Held):
    __slots__ = ()


HELD = Held(Held(None))


@pytest.fixture(scope="module")
def before() -> Recorded:
    found = recorded((Fixed("what is held", HELD, ("inner",)),))
    assert found is not None, "this Python's objects can be read"
    return found


def differences(before: Recorded, change: Callable[[], object]) -> list[str]:
    """What is seen of a child that makes a change and waits."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        change()
        os.write(write, b"1")
        signal.pause()
    try:
        os.read(read, 1)
        memory = ProcessMemory(pid)
        found = before.differences(memory)
        memory.close()
        return found
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


def replaced(holder: object, name: str) -> Callable[[], object]:
    return lambda: setattr(holder, name, lambda *args: None)


def other_code() -> None:
    functional.softplus_like = None  # type: ignore[attr-defined]  # an entry more says nothing
    nn.Tanh.forward.__code__ = (lambda self, x: x).__code__


def other_defaults() -> None:
    functional.dropout.__defaults__ = (0.9, True, False)


def other_class() -> None:
    HELD.inner.__class__ = OtherHeld  # type: ignore[assignment]


def test_nothing_is_seen_where_nothing_is_changed(before: Recorded) -> None:
    assert differences(before, lambda: [object() for _ in range(1000)]) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (replaced(nn.Linear, "forward"), "torch.nn.modules.linear.Linear.forward"),
        (replaced(torch.optim.SGD, "step"), "torch.optim.sgd.SGD.step"),
        (replaced(torch, "tanh"), "torch.tanh"),
        (replaced(torch.Tensor, "numpy"), "a method of torch.Tensor"),
        (replaced(torch.linalg, "solve"), "torch.linalg.solve"),
        (replaced(functional, "gelu"), "torch.nn.functional.gelu"),
        (replaced(nn.Linear, "__call__"), "a method of torch.nn.modules.linear.Linear"),
        (replaced(sys.modules["time"], "perf_counter"), "time.perf_counter"),
        (replaced(sys.modules["builtins"], "len"), "builtins.len"),
        (replaced(functional, "len"), "torch.nn.functional.len"),
        (replaced(run, "fingerprint"), "run.fingerprint"),
        (other_code, "torch.nn.modules.activation.Tanh.forward"),
        (other_defaults, "torch.nn.functional.dropout"),
        (lambda: setattr(HELD, "inner", Held(None)), "what is held"),
        (lambda: delattr(torch.fft, "fft"), "torch.fft.fft"),
    ],
)
def test_what_is_replaced_is_named(
    before: Recorded, change: Callable[[], object], name: str
) -> None:
    assert any(found.endswith(name) for found in differences(before, change))


def test_changes_of_the_process_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    start = process_state()
    assert changes(start, process_state()) == []
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    monkeypatch.setenv("A_VARIABLE_OF_ITS_OWN", "1")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="of its own")
        assert changes(start, process_state()) == ["os.environ: MKL_NUM_THREADS"]
        warnings.simplefilter("ignore")
        found = changes(start, process_state())
    assert found[-1] == "warnings.filters: ignore Warning for everybody"


def test_what_the_system_knows_is_asked_of_no_process() -> None:
    start = kernel_state(os.getpid())
    old = signal.signal(signal.SIGUSR2, lambda number, frame: None)
    found = changes(start, kernel_state(os.getpid()))
    signal.signal(signal.SIGUSR2, old)
    assert found == ["the signals that are caught"]
    assert changes(start, kernel_state(os.getpid())) == []


@pytest.mark.parametrize(
    ("modules", "number", "named"),
    [
        (["triton"], signal.SIGUSR2, False),
        (["tritonium"], signal.SIGUSR2, True),
        (["triton"], signal.SIGALRM, True),
    ],
)
def test_llvm_takes_signals_when_triton_compiles(
    modules: list[str], number: signal.Signals, named: bool
) -> None:
    def ask(header: Mapping[str, Any], data: Any = None) -> dict[str, Any]:
        return {"state": {}, "modules": modules}

    watch = Watch(ask, os.getpid(), None)
    watch.begin({"settings": {}, "state": {}}, None, Files("", "", "cpu", 0))
    old = signal.signal(number, lambda number, frame: None)
    found = watch.process_changed()
    signal.signal(number, old)
    assert found == (["the signals that are caught"] if named else [])


def test_every_flag_of_the_backends_is_a_setting() -> None:
    names = global_settings()
    for name in ("mkldnn.enabled", "cuda.flash_sdp_enabled", "cudnn.enabled"):
        assert f"torch.backends.{name}" in names
