"""Two gloo ranks: gradients are averaged over an emitted model as over the original."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.behaviour.emitted import Pair

RANK = """
import sys, torch, torch.distributed as dist
import original, emitted
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

class Count(TorchDispatchMode):
    ours = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Count.ours += str(func).startswith("opweld_")
        return func(*args, **(kwargs or {}))

emitted.ModelNew._opweld.host_bound = lambda *_: False  # kernels run at any size
dist.init_process_group("gloo")
rank = dist.get_rank()
trained = []
for module, name in ((original, "Model"), (emitted, "ModelNew")):
    torch.manual_seed(0)
    model = getattr(module, name)(*module.get_init_inputs())
    parallel = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank + 1)
    for _ in range(3):
        optimiser.zero_grad()
        with Count():
            parallel(torch.randn(8, 24)).square().sum().backward()
        optimiser.step()
    trained.append([p.detach().clone() for p in model.parameters()])
for ours, theirs in zip(*trained):
    torch.testing.assert_close(ours, theirs)
    everywhere = [torch.empty_like(ours) for _ in range(2)]
    dist.all_gather(everywhere, ours)
    assert torch.equal(*everywhere)
print(Count.ours)
dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.slow
def test_two_ranks(linear: Pair, tmp_path: Path) -> None:
    (tmp_path / "original.py").write_text(linear.source, "utf-8")
    (tmp_path / "emitted.py").write_text(linear.text, "utf-8")
    environ = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            cwd=tmp_path,
            env={**environ, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in ranks:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.split()[-1] == "3"
