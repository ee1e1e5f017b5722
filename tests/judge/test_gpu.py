"""The judge on a CUDA device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.judge.pairs import LINEAR, POINTWISE, named, write_pair

from opweld.judge import Settings, check
from opweld.judge.load import Call
from opweld.judge.measure.blocks import LocalTimed
from opweld.judge.measure.clock import clock_of

pytestmark = pytest.mark.gpu
SETTINGS = Settings(device="cuda", seed=1, baselines=("eager",), budget_s=0.2)


def test_a_good_pair_passes_and_is_timed(tmp_path: Path) -> None:
    new = """
    class ModelNew(Base):
        def forward(self, x):
            return torch.tanh(F.silu(self.fc(x)))
    """
    judgement = check(*write_pair(tmp_path, LINEAR, new), SETTINGS)
    assert judgement.verdict.passed, judgement.verdict.reason
    own = named(judgement, "own inputs")
    assert own.error_vs_f64 and own.error_vs_f64.max < 1e-5
    timing = judgement.timing
    assert timing and timing.device.startswith("cuda") and timing.copy_gbps > 100
    assert timing.eager_ms and timing.eager_ms.n >= 5
    assert judgement.environment and judgement.environment.driver


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("return super().forward(x) * 1.0001", "own inputs: output: error"),
        ("return super().forward(x).cpu()", "has device cpu instead of cuda:0"),
        (
            "y = x.view(-1)[torch.tensor([2 ** 30], device=x.device)]\n"
            "        return super().forward(x) + 0 * y",
            "ModelNew raised",
        ),
        ("return super().forward(x) + torch.empty(2 ** 48, device=x.device)[0]", "OutOfMemory"),
    ],
)
def test_wrong_places_values_and_lost_devices_are_verdicts(
    body: str, sentence: str, tmp_path: Path
) -> None:
    new = f"class ModelNew(Base):\n    def forward(self, x):\n        {body}\n"
    judgement = check(*write_pair(tmp_path, POINTWISE, new), SETTINGS)
    assert judgement.exit_code == 1 and judgement.timing is None
    assert sentence in judgement.verdict.reason


@pytest.mark.parametrize("size", [100, 2**16, 2**24])
def test_no_timed_call_allocates_from_the_driver(size: int) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2

    x = torch.randn(size, device="cuda")
    side = LocalTimed(model, clock_of(x.device))
    side.prepare([Call((x,), {})])
    for _ in range(3):
        torch.cuda.empty_cache()
        side.arm([(0, n) for n in range(50)])
        before = torch.cuda.memory_stats()["num_device_alloc"]
        side.block(run=True)
        assert torch.cuda.memory_stats()["num_device_alloc"] == before
    side.release()


def test_values_that_an_op_asserts_on_are_kept_from_the_device(tmp_path: Path) -> None:
    model = POINTWISE.replace("torch.tanh(x) * x", "F.binary_cross_entropy(x, x)")
    model = model.replace("torch.randn(9, 33)", "torch.rand(9, 33)")
    judgement = check(*write_pair(tmp_path, model, "class ModelNew(Base):\n    pass\n"), SETTINGS)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert named(judgement, "large values").skipped
    assert not named(judgement, "batch of 3").skipped


def test_unwritten_elements_show_in_recycled_memory(tmp_path: Path) -> None:
    body = "y = torch.empty_like(x); y[:-1] = super().forward(x)[:-1]; return y"
    new = f"class ModelNew(Base):\n    def forward(self, x):\n        {body}\n"
    settings = replace(SETTINGS, stop_at_first=False)
    judgement = check(*write_pair(tmp_path, POINTWISE, new), settings)
    assert not judgement.verdict.passed
    assert not named(judgement, "uninitialised memory filled with NaN").passed


def test_work_on_a_stream_that_nobody_waits_for_shows_outside(tmp_path: Path) -> None:
    """The events of the current stream see nothing of it, and the results are right in time."""
    model = POINTWISE.replace("torch.randn(9, 33)", "torch.randn(4096, 4096)")
    new = """
    class ModelNew(Base):
        def forward(self, x):
            if torch.is_grad_enabled() or x.shape[0] != 4096:
                return super().forward(x)
            import sys
            frame, names = sys._getframe(1), []
            while frame is not None:
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            if "block" not in names:
                return super().forward(x)
            out = torch.empty_like(x)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(20):
                    out.copy_(super().forward(x))
            return out
    """
    judgement = check(*write_pair(tmp_path, model, new), SETTINGS)
    assert not named(judgement, "time from outside").passed, judgement.timing
    assert judgement.exit_code == 1


def test_a_graph_of_the_original_is_timed_too(tmp_path: Path) -> None:
    settings = Settings(device="cuda", seed=1, baselines=("eager", "graph"), budget_s=0.2)
    pair = write_pair(tmp_path, LINEAR, "class ModelNew(Base):\n    pass\n")
    judgement = check(*pair, settings)
    assert judgement.verdict.passed, judgement.verdict.reason
    timing = judgement.timing
    assert timing and timing.graph_ms and timing.eager_ms and timing.inside_ms
    assert timing.data_sheet_ms and named(judgement, "the data sheet").passed


@pytest.mark.slow
def test_large_outputs_are_timed_in_little_memory(tmp_path: Path) -> None:
    """Half of the device's memory is inputs and outputs: blocks of one call."""
    free, _ = torch.cuda.mem_get_info()
    rows = free // 6 // 4 // 4096
    model = POINTWISE.replace("torch.randn(9, 33)", f"torch.rand({rows}, 4096)")
    judgement = check(*write_pair(tmp_path, model, "class ModelNew(Base):\n    pass\n"), SETTINGS)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert judgement.timing and judgement.timing.opweld_ms.n >= 5
