"""What every engine does: outcomes as tasks finish, a task that is cancelled, an end."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.suite.clusters import needs_ray
from tests.suite.stores import ROOT, command, numbered, verdicts

from opweld.errors import UserError
from opweld.judge.process.processes import descendants
from opweld.judge.values import Settings
from opweld.suite.asking import of_function
from opweld.suite.engines import Engine
from opweld.suite.engines.named import Where, engine_of
from opweld.suite.engines.slots import slots_here, slots_of
from opweld.suite.spec import digests_of
from opweld.suite.values import Gpu, Outcome, Task, Unit

PATIENCE_S = 120
NO_SUBMITIT = "submitit is not installed: pip install 'opweld[slurm]'"
needs_submitit = pytest.mark.skipif(
    importlib.util.find_spec("submitit") is None, reason=NO_SUBMITIT
)
SETTINGS = Settings(measure=False, sandbox="off", time_limit_s=60)


def task(folder: Path, name: str, do: str = "trivial") -> Task:
    (folder / "model.py").write_text("x = 1\n")
    unit = Unit(name, str(folder / "model.py"))
    work = of_function(f"tests.suite.operations:{do}", SETTINGS)
    return Task(f"t{name}", name, "measure", unit, work, digests_of(unit))


@pytest.fixture(
    params=[
        "local",
        pytest.param("ray", marks=needs_ray),
        pytest.param("slurm", marks=needs_submitit),
    ]
)
def engine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """Ray is a cluster that runs already; Slurm's jobs are processes of this machine."""
    monkeypatch.chdir(ROOT)
    name = request.param
    address = request.getfixturevalue("ray_address") if name == "ray" else None
    where = Where(name, "cpu", 2, address=address, slurm={"cluster": "local"})
    found = engine_of(where, of_function("a:b", SETTINGS), tmp_path / "engine")
    yield found
    found.close()


def outcomes(engine: Engine, number: int) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    until = time.monotonic() + PATIENCE_S
    while len(found) < number:
        assert time.monotonic() < until
        found |= {outcome.task: outcome for outcome in engine.finished(0.2)}
    return found


def test_each_task_comes_back_and_one_that_is_cancelled_too(engine: Engine, tmp_path: Path) -> None:
    first, second = engine.slots()
    assert engine.finished(0.0) == []
    engine.submit(task(tmp_path, "hangs", "hang"), first)
    engine.submit(task(tmp_path, "quick"), second)
    done = outcomes(engine, 1)
    assert list(done) == ["tquick"], "as they finish, not in their order"
    assert done["tquick"].answer is not None and done["tquick"].slot == second.id
    assert done["tquick"].answer.reason == "quick"
    engine.cancel("thangs")
    ended = outcomes(engine, 1)["thangs"]
    assert (ended.fault, ended.answer) == ("interrupted", None)
    engine.submit(task(tmp_path, "again"), first)
    assert outcomes(engine, 1)["tagain"].answer is not None, "the slot is free"


@needs_ray
def test_ray_of_our_own_listens_on_the_loopback_alone(ray_cluster: tuple[str, int]) -> None:
    address, keeper = ray_cluster
    assert address.startswith("127.0.0.1:")
    found = list(listening(keeper))
    assert len(found) > 3 and set(found) == {"127.0.0.1"}


def listening(process: int) -> Iterator[str]:
    """Addresses at which a process, or one that it started, takes TCP connections."""
    inodes = set()
    for pid in (process, *descendants(process)):
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[n] for n in (1, 3, 9))
            if state == "0A" and f"socket:[{inode}]" in inodes:
                words = bytes.fromhex(local.partition(":")[0])[-4:]  # the last of a mapped one
                yield ".".join(str(byte) for byte in reversed(words))


@needs_submitit
def test_a_suite_on_slurm(tmp_path: Path) -> None:
    spec, store = numbered(tmp_path, 4), tmp_path / "s.sqlite"
    where = ["--engine", "slurm", "--slurm", "cluster=local"]
    argv = command(spec, store, "harmful", *where)
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1, done.stderr
    assert verdicts(store) == {("passed", ""): 3, ("crashed", "crashed"): 1}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (Where("moon"), "there is no engine 'moon'; use local, ray, slurm"),
        (Where("ray", address="127.0.0.1:1"), "no Ray at 127.0.0.1:1"),
        (Where("slurm", slurm={"cluster": "local", "nonsense": "1"}), "--slurm cannot be that"),
    ],
)
def test_an_engine_that_cannot_be_had(where: Where, said: str, tmp_path: Path) -> None:
    if where.engine != "moon" and importlib.util.find_spec({"slurm": "submitit"}.get(
        where.engine, where.engine)) is None:  # fmt: skip
        said = "which is not installed; pip install 'opweld"
    with pytest.raises(UserError, match=said):
        engine_of(where, of_function("a:b", SETTINGS), tmp_path)


@pytest.mark.parametrize(("engine", "module"), [("ray", "ray"), ("slurm", "submitit")])
def test_an_engine_that_is_not_installed(
    engine: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=r"not installed; pip install 'opweld\["):
        engine_of(Where(engine), of_function("a:b", SETTINGS), tmp_path)


GPUS = tuple(Gpu(f"GPU-{n}", "NVIDIA H200", 141 * 10**9, n) for n in range(4))


def test_the_slots_of_a_machine() -> None:
    def shape(*given: object) -> tuple[int, int]:
        slots = slots_of("n", *given)  # type: ignore[arg-type]
        measuring = [slot for slot in slots if "measure" in slot.phases]
        return len(measuring), len(slots) - len(measuring)

    assert shape(GPUS, 64, None, None, True) == (4, 8)
    assert shape(GPUS, 3, 2, None, True) == (2, 3)
    assert shape(GPUS, 64, None, 0, True) == (4, 0)
    assert shape((), 64, None, None, True) == (1, 0), "times on processors are taken one at a time"
    assert shape((), 64, None, None, False) == (64, 0)
    assert shape((), 64, 8, 2, False) == (8, 2)
    with pytest.raises(UserError, match="--jobs cannot be 2 here.*--no-measure"):
        slots_of("n", (), 64, 2, 0, True)
    threads = {slot.threads for slot in slots_of("n", (), 64, 8, 0, False)}
    assert threads == {8}, "they share the processors"


def test_a_gpu_that_is_asked_for_and_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opweld.suite.engines.slots.visible_gpus", lambda: ())
    with pytest.raises(UserError, match="no GPU that its driver lists"):
        slots_here("cuda")
    monkeypatch.setattr("opweld.suite.engines.slots.visible_gpus", lambda: GPUS)
    assert len(slots_here("auto", builders=0)) == 4
    assert all(slot.gpu is None for slot in slots_here("cpu"))
