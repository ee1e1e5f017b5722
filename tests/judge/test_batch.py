"""Many candidates: all are judged, whatever one of them does to the process that judges."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.judge.pairs import POINTWISE, SAME, write_pair

import opweld
from opweld import Settings
from opweld.errors import ModelFileError
from opweld.judge import batch
from opweld.judge.batch import Judged, check_many
from opweld.judge.build.locks import BUILDS

QUICK = opweld.Settings(device="cpu", measure=False, seed=1, pass_env=("BATCH_TEST",))
# Candidates that kill the server, or leave a note beside the files.
FREE = replace(QUICK, sandbox="off")
WRONG = (
    "class ModelNew(Base):\n    def forward(self, x):\n        return super().forward(x) * 1.01\n"
)
KILLS_ITSELF = """
class ModelNew(Base):
    def forward(self, x):
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
"""
ENDLESS = "import time\nwhile True:\n    time.sleep(1)\n"
# The process that judges, and the server above it, at the first attempt only.
KILLS_THE_SERVER = """
import os, signal
if not os.path.exists(FLAG):
    open(FLAG, "w").close()
    referee = os.getppid()
    server = int(open(f"/proc/{referee}/stat").read().rpartition(")")[2].split()[1])
    os.kill(server, signal.SIGKILL)
    signal.pause()
class ModelNew(Base):
    pass
"""


def pair(folder: Path, new: str, model: str = POINTWISE) -> tuple[Path, Path]:
    folder.mkdir()
    return write_pair(folder, model, new)


def judged(
    pairs: Iterator[tuple[Path, Path]] | list[tuple[Path, Path]], settings: Settings = QUICK
) -> dict[int, Judged]:
    found = check_many(pairs, settings=settings, devices=("cpu", "cpu"))
    return {each.index: each for each in found}


def reason(one: Judged) -> str:
    assert one.judgement is not None
    return one.judgement.verdict.reason


def test_good_ones_pass_beside_one_that_kills_its_process(tmp_path: Path) -> None:
    texts = (SAME, KILLS_ITSELF, SAME, WRONG, SAME)
    pairs = [pair(tmp_path / str(n), text) for n, text in enumerate(texts)]
    found = judged(pairs)
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert [found[n].passed for n in range(5)] == [True, False, True, False, True]
    assert "ModelNew was killed" in reason(found[1])
    assert "own inputs" in reason(found[3]) and "grade F" in reason(found[3])
    assert found[3].judgement is not None
    checks = found[3].judgement.verdict.checks
    assert [c.passed for c in checks] == [True, True, False], "the first that fails ends it"
    assert [found[n].new_path for n in range(5)] == [new for _, new in pairs]
    assert all(found[n].seconds > 0 and found[n].device == "cpu" for n in range(5))


def test_a_server_that_dies_is_replaced_and_the_pair_judged_again(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    deadly = KILLS_THE_SERVER.replace("FLAG", repr(str(flag)))
    texts = (SAME, deadly, SAME)
    pairs = [pair(tmp_path / str(n), text) for n, text in enumerate(texts)]
    found = list(check_many(pairs, settings=FREE, devices=("cpu",)))
    assert flag.exists()
    assert [each.passed for each in found] == [True, True, True], [reason(each) for each in found]


def test_a_file_that_cannot_be_judged_is_an_error_of_its_own(tmp_path: Path) -> None:
    good = pair(tmp_path / "good", SAME)
    lame = pair(tmp_path / "lame", SAME, POINTWISE.replace("class Model(", "class Other("))
    found = judged([(good[0], tmp_path / "no.py"), lame, good])
    assert isinstance(found[0].error, ModelFileError) and "no such file" in str(found[0].error)
    assert found[1].error is not None and found[1].judgement is None and not found[1].passed
    assert found[2].passed and found[2].error is None


def test_pairs_are_taken_when_there_is_room_and_leaving_ends_everything(tmp_path: Path) -> None:
    one = pair(tmp_path / "one", SAME)
    endless = (
        "class ModelNew(Base):\n    def forward(self, x):\n        while True: open(FLAG, 'w')\n"
    )
    flag = tmp_path / "runs"
    stuck = pair(tmp_path / "stuck", endless.replace("FLAG", repr(str(flag))))
    taken = 0

    def pairs() -> Iterator[tuple[Path, Path]]:
        nonlocal taken
        while True:
            taken += 1
            yield one if taken == 1 else stuck

    results = check_many(pairs(), settings=FREE, devices=("cpu",))
    assert next(results).passed
    assert taken == 1, "the next is taken when it is asked for"
    results.close()
    results = check_many(
        [one, stuck, pair(tmp_path / "endless", ENDLESS)],
        settings=FREE,
        devices=("cpu", "cpu"),
        builders=3,
    )
    assert next(results).index == 0
    deadline = time.monotonic() + 120
    while not flag.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert flag.exists()
    results.close()
    assert not started_here()


def started_here() -> list[int]:
    """Living servers, referees and candidates that descend from this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "environ").read_bytes().split(b"\0")
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z" and f"BATCH_TEST={os.getpid()}".encode() in words:
                found.append(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def _recognisable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCH_TEST", str(os.getpid()))


def test_each_candidate_builds_in_an_empty_folder(tmp_path: Path) -> None:
    look = f"""
import os
from pathlib import Path
FOLDER = Path(os.environ[{BUILDS!r}])
assert not list(FOLDER.iterdir())
(FOLDER / "left").write_text("by another")
class ModelNew(Base):
    pass
"""
    pairs = [pair(tmp_path / str(n), look) for n in range(2)]
    found = list(check_many(pairs, settings=QUICK, devices=("cpu",)))
    assert [each.passed for each in found] == [True, True]


def test_what_is_built_ahead_is_found_and_what_fails_there_is_built_again(tmp_path: Path) -> None:
    look = f"""
import os
from pathlib import Path
NOTES, FOLDER = Path({str(tmp_path)!r}, NAME), Path(os.environ[{BUILDS!r}])
earlier = FOLDER / "earlier"
with NOTES.open("a") as notes:
    notes.write(f"{{earlier.exists()}} {{os.environ['CUDA_VISIBLE_DEVICES']!r}}\\n")
if not earlier.exists():
    earlier.write_text("by the same file")
    if FAILS:
        os.kill(os.getpid(), 9)
class ModelNew(Base):
    pass
"""
    texts = [look.replace("NAME", f"'note{n}'").replace("FAILS", str(n == 1)) for n in range(3)]
    pairs = [pair(tmp_path / str(n), text) for n, text in enumerate(texts)]
    found = list(check_many(pairs, settings=FREE, devices=("cpu",), builders=2))
    assert [each.passed for each in found] == [True, False, True], "in their order"
    notes = [(tmp_path / f"note{n}").read_text().splitlines() for n in range(3)]
    assert notes[0] == notes[2] == ["False ''", "True ''"]
    assert notes[1] == ["False ''", "False ''"], "an empty folder after a failure"


@pytest.mark.parametrize(
    ("visible", "device", "expected"),
    [
        ("2,5", "auto", ("cuda:0", "cuda:1")),
        ("2,5", "cpu", ("cpu",)),
        ("2,5", "cuda:1", ("cuda:1",)),
        ("", "auto", ("cpu",)),
        ("3,-1,4", "auto", ("cuda:0",)),
        ("-1", "cuda", ("cuda:0",)),
    ],
)
def test_the_devices_that_are_visible(
    visible: str, device: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert batch.default_devices(device) == expected


def test_a_server_sees_its_own_device_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert batch.visible_to("cuda:1") == {"CUDA_VISIBLE_DEVICES": "5"}
    assert batch.visible_to("cpu") == {"CUDA_VISIBLE_DEVICES": ""}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert batch.visible_to("cuda:1") == {"CUDA_VISIBLE_DEVICES": "1"}


def test_the_gpus_that_the_driver_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: x)'\necho 'GPU 1: B (UUID: y)'\n")
    tool.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert batch.num_gpus() == 2
    tool.unlink()
    assert batch.num_gpus() == 0


def test_one_call_for_one_pair(tmp_path: Path) -> None:
    judgement = opweld.check(*write_pair(tmp_path, POINTWISE, SAME), QUICK)
    assert isinstance(judgement, opweld.Judgement) and judgement.verdict.passed
    assert isinstance(judgement.verdict, opweld.Verdict) and judgement.seed == 1
