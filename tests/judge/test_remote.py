"""The candidate's process seen from the referee: what it does ends as one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from tests.judge.pairs import POINTWISE, failing, named, write_pair

import opweld
from opweld.judge import Judgement, Server, Settings, check
from opweld.judge.load import Call
from opweld.judge.process.environment import FRESH
from opweld.judge.process.leaf import RemoteLeaf, ResultHandle
from opweld.judge.process.protocol import Raised
from opweld.judge.process.remote import RemoteSide
from opweld.judge.process.shared import SharedMemory
from opweld.judge.process.wire import Wire, bytes_of
from opweld.judge.verify.run import Run
from opweld.sandbox import Sandbox

QUICK = Settings(device="cpu", measure=False, seed=1, time_limit_s=60)


def judged(folder: Path, new: str, settings: Settings = QUICK, model: str = POINTWISE) -> Judgement:
    """The candidate may write to the folder, to tell what it saw."""
    with Server(sandbox=Sandbox(settings.sandbox), writable=(folder,)) as server:
        return check(*write_pair(folder, model, new), settings, server=server)


def new_with(body: str) -> str:
    lines = textwrap.indent(textwrap.dedent(body).strip(), "        ")
    return f"class ModelNew(Base):\n    def forward(self, x):\n{lines}\n"


def test_only_its_own_descriptors_are_open(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    judged(
        tmp_path,
        f"import os\nopen({str(seen)!r}, 'w').write(' '.join(os.listdir('/proc/self/fd')))\n"
        + new_with("return super().forward(x)"),
    )
    # beside the four: the listing, and the file that it is written to
    assert set(map(int, seen.read_text().split())) <= {0, 1, 2, 3, 4, 5}


def test_garbage_on_its_socket_is_no_answer(tmp_path: Path) -> None:
    found = judged(tmp_path, new_with("import os; os.write(3, b'{}' * 99); return x"))
    assert not found.verdict.passed
    assert found.verdict.reason.startswith("ModelNew's process gives answers that are none")


def test_a_closed_socket_ends_the_candidate(tmp_path: Path) -> None:
    found = judged(tmp_path, new_with("import os; os.close(3); return x"))
    assert not found.verdict.passed and "own inputs" in found.verdict.reason


def test_memory_without_end_is_stopped(tmp_path: Path) -> None:
    settings = Settings(device="cpu", measure=False, seed=1, memory_limit_bytes=2**30)
    body = """
    kept = []
    while True:
        kept.append(torch.ones(2**22))
    """
    found = judged(tmp_path, new_with(body), settings)
    line = 1 + (tmp_path / "new.py").read_text().split("\n").index(
        "            kept.append(torch.ones(2**22))"
    )
    assert found.verdict.reason.startswith("ModelNew took more than 1 GiB of memory at new.py:")
    assert f"new.py:{line}" in found.verdict.reason or f"new.py:{line - 1}" in found.verdict.reason


def test_whoever_kills_the_judge_fails(tmp_path: Path) -> None:
    settings = replace(QUICK, sandbox="off")  # it could not
    found = judged(tmp_path, new_with("import os; os.kill(os.getppid(), 9); return x"), settings)
    assert not found.verdict.passed and "killed" in found.verdict.reason
    assert "the process that judges, waiting for ModelNew, was killed by SIGKILL" in (
        found.verdict.reason
    )


class Canned:
    """A connection on which the answers are there already."""

    pid, step = 0, ""

    def __init__(self, *answers: tuple[dict[str, object], torch.Tensor | None]) -> None:
        self.data, self.closed, self.shared = bytearray(), False, SharedMemory(-1)
        for header, payload in answers:
            Wire(self.data.extend, lambda buffer: None).send(header, payload)

    def send_all(self, data: memoryview) -> None:
        return

    def receive_all(self, buffer: memoryview) -> None:
        buffer[:] = self.data[: len(buffer)]
        del self.data[: len(buffer)]

    def close(self, wait: bool = True) -> None:
        self.closed = True


def test_of_a_state_only_what_has_the_originals_size_is_fetched() -> None:
    """Whatever a process says that it has: 2^60 elements, say, on a device that is not there."""
    leaf = {"shape": [2], "dtype": "float32", "device": "cuda:9", "layout": "torch.strided"}
    leaves = [leaf, {**leaf, "shape": [2**60]}, {**leaf, "dtype": "int8"}]
    described = {"names": ["a", "b", "c"], "leaves": leaves, "id": 1}
    answers = (described, None), ({}, bytes_of(torch.tensor([1.0, 2.0])))
    side = RemoteSide(Canned(*answers))  # type: ignore[arg-type]
    state = side.state(dict.fromkeys("abc", torch.zeros(2)))
    assert state["a"].tolist() == [1.0, 2.0] and state["a"].device.type == "cpu"
    assert state["b"].shape == (2**60,) and state["b"].is_meta
    assert state["c"].dtype == torch.int8 and state["c"].is_meta


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_inputs_of_a_device_are_compared(layout: torch.layout) -> None:
    dense = torch.tensor([[0.0, 2.0], [0.0, -1.0]])
    given = dense.to_sparse(layout=layout)
    leaf = {"shape": [2, 2], "dtype": "float32", "device": "cpu", "layout": str(layout)}

    def compare(found: torch.Tensor) -> None:
        answers = ({"leaves": [leaf], "id": 1}, None), ({}, bytes_of(found))
        side = RemoteSide(Canned(*answers))  # type: ignore[arg-type]
        side._compare_inputs(Call((given,), {}), Run((), [], []))

    compare(dense)
    with pytest.raises(Raised, match="writes"):
        compare(dense * 2)


def test_checks_that_were_done_stay(tmp_path: Path) -> None:
    body = """
    if x.shape[0] == 3:
        import os
        os._exit(0)
    return super().forward(x)
    """
    found = judged(tmp_path, new_with(body))
    assert found.verdict.reason.startswith("ModelNew ended the process with exit code 0")
    assert named(found, "own inputs").passed and found.environment is not None


def test_a_patched_torch_is_told(tmp_path: Path) -> None:
    patch = "torch.allclose = lambda *a, **k: True\nimport time\ntime.perf_counter = lambda: 0.0\n"
    found = judged(tmp_path, patch + new_with("return super().forward(x)"))
    assert failing(found) == {"torch and the clock"}
    detail = named(found, "torch and the clock").detail
    assert "torch.allclose" in detail and "time.perf_counter" in detail


def test_a_busy_thread_is_seen(tmp_path: Path) -> None:
    thread = "import threading\ndef spin():\n    while True: pass\n"
    thread += "threading.Thread(target=spin, daemon=True).start()\n"
    found = judged(tmp_path, thread + new_with("return super().forward(x)"))
    assert failing(found) == {"work after the answer"}


def test_neither_seed_nor_request_reaches_the_candidate(tmp_path: Path) -> None:
    """The process is forked before they are read: not even its memory has them."""
    seed = 1234567891
    seen = tmp_path / "seen"
    look = f"""
    import gc
    found = any(
        {seed} in (o.values() if type(o) is dict else o)
        for o in gc.get_objects() if type(o) in (dict, list, tuple) and len(o) < 64
        and all(type(v) in (int, str, float, dict) for v in (o.values() if type(o) is dict else o))
    )
    open({str(seen)!r}, "w").write(str(found))
    return super().forward(x)
    """
    settings = Settings(device="cpu", measure=False, seed=seed)
    # the constant stands in the code, which is no container of the kinds that are looked at
    judged(tmp_path, new_with(look), settings)
    assert seen.read_text() == "False"


def test_a_warm_server_serves_again_after_a_death(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    good = write_pair(tmp_path / "good", POINTWISE, new_with("return super().forward(x)"))
    bad = write_pair(
        tmp_path / "bad", POINTWISE, new_with("import os; os.kill(os.getppid(), 9); return x")
    )
    with Server() as server:
        verdicts = [check(*pair, QUICK, server=server).verdict.passed for pair in (good, bad, good)]
    assert verdicts == [True, False, True]


def test_what_leaves_its_session_ends_too(tmp_path: Path) -> None:
    seen = tmp_path / "pid"
    body = f"""
    import os
    if not os.path.exists({str(seen)!r}) and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open({str(seen)!r}, "w").write(str(os.getpid()))
            import time
            time.sleep(300)
        os._exit(0)
    return super().forward(x)
    """
    found = judged(tmp_path, new_with(body))
    assert "processes left behind" in failing(found)
    assert not os.path.exists(f"/proc/{seen.read_text()}")


@pytest.mark.slow
def test_processes_that_cannot_use_the_device_are_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where something looked at CUDA before the fork: slower, with the same verdicts."""
    monkeypatch.setenv(FRESH, "1")
    seen = tmp_path / "seen"
    tell = f"import sys\nopen({str(seen)!r}, 'w').write(' '.join(sys.orig_argv))\n"
    good = judged(tmp_path, tell + new_with("return super().forward(x)"))
    assert good.verdict.passed, good.verdict.reason
    assert seen.read_text().endswith("-m opweld.judge.process.candidate 3")
    bad = judged(tmp_path, new_with("import os; os._exit(3)"))
    assert bad.verdict.reason.startswith("ModelNew ended the process with exit code 3 (own inputs)")


LOOKS = """
import torch

def look(*args, **kwargs):
    raise SystemExit("a device was looked at")

torch.cuda.is_available = torch.cuda.device_count = torch.cuda.current_device = look
torch.accelerator.is_available = torch.accelerator.current_accelerator = look
import opweld.judge.process.server
torch.use_deterministic_algorithms(False)
print("imported")
"""


def test_no_device_is_looked_at_before_the_fork() -> None:
    """CUDA cannot be used in a process that is forked from one that looked."""
    source = str(Path(opweld.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", LOOKS],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "imported", done.stderr[-2000:]


@pytest.mark.parametrize("size", [3, 50_000])
def test_outputs_that_stay_there_are_compared_in_pieces(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no memory to spare nothing is fetched whole; the last element still counts."""
    monkeypatch.setenv("OPWELD_JUDGE_WHOLE_BYTES", "0")
    model = POINTWISE.replace("torch.randn(9, 33)", f"torch.randn({size}, 3)")
    good = judged(tmp_path, new_with("return x * torch.tanh(x)"), model=model)
    assert good.verdict.passed, good.verdict.reason
    bad = judged(
        tmp_path,
        new_with("y = x * torch.tanh(x)\ny[-1:, 2:] += 1e-3\nreturn y"),
        model=model,
    )
    assert named(bad, "own inputs").first_bad_index == (size - 1, 2)


@pytest.mark.parametrize(
    "body",
    [
        "return torch.empty(x.shape, device='meta')",
        "y = super().forward(x); y.untyped_storage().resize_(0); return y",
    ],
)
def test_a_result_without_data_is_said_to_be_none(body: str, tmp_path: Path) -> None:
    reason = judged(tmp_path, new_with(body)).verdict.reason
    assert "own inputs" in reason or "cannot be read" in reason, reason
    assert "exit code" not in reason


def test_a_result_stays_until_its_last_leaf_is_gone(tmp_path: Path) -> None:
    """One that arrived is dropped here; another, of a dtype that was not expected, is not yet."""
    model = POINTWISE.replace("torch.tanh(x) * x", "torch.tanh(x), torch.tanh(x) * x")
    body = """
    first, second = super().forward(x)
    return first, second.float()
    """
    found = judged(tmp_path, new_with(body), model=model)
    assert found.verdict.passed, found.verdict.reason


def test_a_result_is_dropped_with_its_last_leaf() -> None:
    dropped = list[int]()
    holder = Mock(drop=dropped.append)
    handle = ResultHandle(holder, 7)
    leaves = [
        RemoteLeaf(
            holder, 7, n, torch.Size([2]), torch.float32, torch.device("cpu"), torch.strided, handle
        )
        for n in range(2)
    ]
    del handle
    leaves.pop()
    assert dropped == []
    leaves.pop()
    assert dropped == [7]


PATCHES = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        nn.Module.of_a_library = lambda self: None

    def forward(self, x):
        return torch.tanh(x)

def get_inputs():
    return [torch.randn(32, 8)]

def get_init_inputs():
    return []
"""


def test_what_building_the_original_patches_is_not_the_candidates_doing(tmp_path: Path) -> None:
    found = judged(tmp_path, new_with("return super().forward(x)"), model=PATCHES)
    assert found.verdict.passed, found.verdict.reason
    more = "nn.Module.another = lambda self: None\n"
    found = judged(tmp_path, more + new_with("return super().forward(x)"), model=PATCHES)
    assert not found.verdict.passed and "another" in found.verdict.reason
