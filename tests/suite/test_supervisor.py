"""The supervisor of a slot: time limits, faults, a GPU that is looked after, locks between suites.

GPUs are not there: what their driver would say of them is given.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.suite.stores import ROOT

from opweld.judge.values import Settings
from opweld.suite.asking import of_function
from opweld.suite.spec import digests_of
from opweld.suite.values import INTERRUPTED, Data, Gpu, Slot, Task, Unit, Work
from opweld.suite.worker.gpus import NoAnswer, State, state_of, visible_gpus
from opweld.suite.worker.process import _new_folder
from opweld.suite.worker.supervisor import Supervisor

GB = 10**9
GPU = Gpu("GPU-1", "NVIDIA H200", 141 * GB)
SETTINGS = Settings(measure=True, sandbox="off", time_limit_s=20.0)
NUMBERS = itertools.count()


def task(folder: Path, do: str = "trivial", unit: Unit | None = None, limit_s: float = 60) -> Task:
    """Timed work: it has its device to itself."""
    (folder / "model.py").write_text("x = 1\n")
    unit = unit or Unit("0", str(folder / "model.py"))
    work: Work = replace(of_function(f"tests.suite.operations:{do}", SETTINGS), limit_s=limit_s)
    assert work.exclusive
    return Task(f"task{next(NUMBERS)}", "key", "measure", unit, work, digests_of(unit))


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    made: list[Supervisor] = []

    def supervisor(gpu: Gpu | None = None, *states: State | str) -> Supervisor:
        told = iter(states)

        def state(_: Gpu) -> State:
            found = next(told)
            if isinstance(found, str):
                raise NoAnswer(found)
            return found

        def calibrate(_: Gpu | None, environ: dict[str, str]) -> Data:
            return {"copy_gbps": 1.0, "seen": environ["CUDA_VISIBLE_DEVICES"]}

        slot = Slot("slot", "here", gpu=gpu)
        made.append(Supervisor(slot, state, calibrate, tmp_path / "locks"))
        return made[-1]

    yield supervisor
    for each in made:
        each.end()


def used(gb: float, errors: int = 0, clock: float = 1980.0) -> State:
    return State(GPU, int(gb * GB), errors, {"clocks.sm": clock, "power.limit": 700.0})


def test_a_task_on_a_gpu_has_its_calibration_clocks_and_limits(
    tmp_path: Path, kept: Callable[..., Supervisor]
) -> None:
    supervisor = kept(GPU, used(0.5), used(0.6), used(0.6, clock=1755.0), used(0.6))
    first, second = (supervisor.run(task(tmp_path)) for _ in range(2))
    for outcome in (first, second):
        assert outcome.answer is not None and outcome.answer.verdict == "passed", outcome
        assert outcome.gpu == GPU and not outcome.bad_gpu
        assert outcome.calibration == {"copy_gbps": 1.0, "seen": "GPU-1"}, "once for both"
    assert (first.state["clocks.sm"], second.state["clocks.sm"]) == (1980.0, 1755.0)
    assert first.state["power.limit"] == 700.0


def test_a_gpu_that_is_lost_before_or_after(
    tmp_path: Path, kept: Callable[..., Supervisor]
) -> None:
    before = kept(GPU, "nvidia-smi fails: GPU is lost").run(task(tmp_path))
    assert (before.answer, before.fault) == (None, "GPU lost")
    assert "GPU is lost" in before.bad_gpu
    after = kept(GPU, used(0), "Unable to determine the device handle").run(task(tmp_path))
    assert after.answer is not None and after.answer.verdict == "passed"
    assert "device handle" in after.bad_gpu, "what passed counts, and the GPU is not used again"
    failed = kept(GPU, used(0), "gone").run(task(tmp_path, "harmful", five(tmp_path)))
    assert (failed.answer, failed.fault, failed.bad_gpu) == (None, "GPU lost", "gone")


def five(folder: Path) -> Unit:
    """A unit that does not pass."""
    (folder / "model.py").write_text("x = 1\n")
    return Unit("5", str(folder / "model.py"))


def test_memory_errors_and_memory_that_is_kept(
    tmp_path: Path, kept: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = kept(GPU, used(0, 2), used(0, 3)).run(task(tmp_path))
    assert outcome.bad_gpu == "3 uncorrected memory errors"
    slow = kept(GPU, used(1), used(9), used(1.1)).run(task(tmp_path))
    assert not slow.bad_gpu, "the driver takes its time"
    monkeypatch.setattr("opweld.suite.worker.supervisor._GIVE_BACK_S", 0.0)
    outcome = kept(GPU, used(1), used(9), used(9), used(9)).run(task(tmp_path))
    assert outcome.bad_gpu == "8.0 GB of its memory were not given back"


def test_a_gpu_without_the_memory_is_busy_and_well(
    tmp_path: Path, kept: Callable[..., Supervisor]
) -> None:
    path = tmp_path / "model.py"
    path.write_text("x = 1\n")
    outcome = kept(GPU, used(100)).run(task(tmp_path, unit=Unit("0", str(path), gpu_memory_gb=60)))
    assert (outcome.fault, outcome.bad_gpu) == ("GPU busy", "")
    assert outcome.detail == "41.0 GB are free, 60 are asked for"


def test_a_task_that_does_not_end_is_ended(tmp_path: Path, kept: Callable[..., Supervisor]) -> None:
    supervisor = kept()
    outcome = supervisor.run(task(tmp_path, "hang", limit_s=1.0))
    assert outcome.answer is not None and outcome.answer.verdict == "timed out"
    assert "did not end within 1 s" in outcome.answer.reason
    after = supervisor.run(task(tmp_path))
    assert after.answer is not None and after.answer.verdict == "passed"


def test_a_task_can_be_cancelled(tmp_path: Path, kept: Callable[..., Supervisor]) -> None:
    supervisor, hanging = kept(), task(tmp_path, "hang")
    threading.Timer(1.0, supervisor.cancel, [hanging.id]).start()
    begin = time.monotonic()
    assert supervisor.run(hanging).fault == INTERRUPTED
    assert time.monotonic() - begin < 15
    after = supervisor.run(task(tmp_path))
    assert after.answer is not None and after.answer.verdict == "passed", "others go on"


def test_a_function_that_returns_no_dictionary_is_said(
    tmp_path: Path, kept: Callable[..., Supervisor]
) -> None:
    outcome = kept().run(task(tmp_path, "returns_a_list"))
    assert outcome.answer is not None and outcome.answer.verdict == "crashed"
    assert outcome.answer.reason.endswith("returned a list, and not a dictionary or None")


def test_a_file_that_changed_meanwhile_is_said(
    tmp_path: Path, kept: Callable[..., Supervisor]
) -> None:
    asked = task(tmp_path)
    (tmp_path / "model.py").write_text("x = 2\n")
    outcome = kept().run(asked)
    assert outcome.answer is not None and outcome.answer.verdict == "refused"
    assert "was changed while the suite ran" in outcome.answer.reason
    (tmp_path / "model.py").unlink()
    assert kept().run(asked).fault == "node lost", "a node that does not see it is to blame"


def test_two_suites_take_turns_on_a_device(tmp_path: Path, kept: Callable[..., Supervisor]) -> None:
    given = {kept(): [task(tmp_path, "slow") for _ in range(3)] for _ in range(2)}
    threads = [
        threading.Thread(target=lambda s=each, tasks=tasks: [s.run(task) for task in tasks])
        for each, tasks in given.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (tmp_path / "model.py.times").read_text().splitlines()
    spans = sorted(tuple(map(float, line.split())) for line in lines)
    assert len(spans) == 6
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_a_wait_for_a_device_can_be_ended(tmp_path: Path, kept: Callable[..., Supervisor]) -> None:
    holder, waiter, hanging = kept(), kept(), task(tmp_path, "hang")
    holding = threading.Thread(target=holder.run, args=(hanging,))
    holding.start()
    time.sleep(1.0)
    threading.Timer(1.0, waiter.close).start()
    outcome = waiter.run(task(tmp_path))
    assert (outcome.fault, outcome.answer) == (INTERRUPTED, None)
    holder.close()
    holding.join()


def test_folders_of_workers_whose_owner_is_gone_go_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, others = f"suite-{2**22 + 1}-x", f"suite-{2**22 + 1}-mine"  # above any process's id
    alive = f"suite-{os.getpid()}-x"
    for name in (gone, others, alive):
        (tmp_path / name).mkdir()
    for name in (gone, alive):
        (tmp_path / name / "worker-mark").write_text("0f" * 8)
    (tmp_path / others / "notes").write_text("of somebody else")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = _new_folder()
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / others, tmp_path / alive, made])


SMI = """#!/bin/sh
case "$*" in *--id=GPU-b*) grep GPU-b {0} ;; *--id=*) exit 6 ;; *) cat {0} ;; esac
"""
LINE = "{}, GPU-{}, NVIDIA H200, 143771, 4, 0, 1980, 3201, 1980, 3201, 700.00, 76.42, 29, 580, {}"


def test_what_the_driver_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, said = tmp_path / "nvidia-smi", tmp_path / "said"
    tool.write_text(SMI.format(said))
    tool.chmod(0o755)
    said.write_text(f"{LINE.format(0, 'a', 'Enabled')}\n{LINE.format(1, 'b', '[N/A]')}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    first, second = visible_gpus()
    assert (first.uuid, second.index, first.memory_bytes) == ("GPU-a", 1, 143771 << 20)
    for given, uuids in (("1", ["GPU-b"]), ("GPU-b,0", ["GPU-b", "GPU-a"]), ("0,7,1", ["GPU-a"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert [gpu.uuid for gpu in visible_gpus()] == uuids
    state = state_of(second)
    assert state.used_bytes == 4 << 20 and state.memory_errors == 0
    assert (state.told["power.limit"], state.told["persistence_mode"]) == (700.0, "[N/A]")
    with pytest.raises(NoAnswer):
        state_of(replace(first, uuid="GPU-c"))
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus() == ()
