"""The judge on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.judge.pairs import LINEAR, POINTWISE, named, write_pair

from opweld.judge import Settings, check

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
    judgement = check(*write_pair(tmp_path, POINTWISE, new), SETTINGS)
    assert not judgement.verdict.passed
    assert not named(judgement, "uninitialised memory filled with NaN").passed
