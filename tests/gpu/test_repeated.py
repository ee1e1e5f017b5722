"""Kernels whose warps or blocks wait for each other: equal bits in many runs, float64 beside them.

python3 -m pytest -m gpu tests/gpu/test_repeated.py

Equal runs alone prove little, so attention also runs with its warps made to drift apart, and the
same tests fail with the order taken out that they are about.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.behaviour.emitted import kernels_in, load_file
from tests.gpu import stress
from tests.gpu.emitting import all_products_ours, write_pair
from torch import Tensor

pytestmark = pytest.mark.gpu

RUNS = 200
RUNS_OF_ATTENTION = 1000
TEXT = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def forward(self, {names}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Form:
    """A forward, its arguments as expressions, and a kernel or function that its text must have."""

    result: str
    arguments: dict[str, str]
    kernel: str
    all_ours: bool = False  # whatever the plan expects of products of these sizes

    def text(self) -> str:
        names, inputs = ", ".join(self.arguments), ", ".join(self.arguments.values())
        return TEXT.format(names=names, result=self.result, inputs=inputs)


def normal(*shape: int) -> str:
    return f"torch.randn({shape})"


def attention(
    length: int, depth: int, more: str = "", mask: str = "", keys: int = 0, kernel: str = ""
) -> Form:
    """Enough heads for all multiprocessors."""
    q, k = (4, 8, length, depth), (4, 8, keys or length, depth)
    arguments = {"q": normal(*q), "k": normal(*k), "v": normal(*k)}
    if mask:
        arguments["m"] = mask.format(rows=length, keys=keys or length)
    result = f"F.scaled_dot_product_attention(q, k, v{more})"
    return Form(result, arguments, kernel or "attend_sm90_kernel")


BOOLEAN, BIAS = "torch.rand(4, 1, {rows}, {keys}) > 0.3", "torch.randn(4, 8, {rows}, {keys})"
SOFTCAP = "torch.softmax(torch.tanh(q @ k.mT / 64.0) * 8.0 + m, -1) @ v"
ATTENTION = {
    **{
        f"{length} keys of {depth}{label}": attention(length, depth, more, mask)
        for length in (300, 512, 1024, 2048)
        for depth in (64, 128)
        for label, more, mask in (
            ("", "", ""),
            (", causal", ", is_causal=True", ""),
            (", a mask", ", attn_mask=m", BOOLEAN),
            (", a bias", ", attn_mask=m", BIAS),
        )
    },
    "80 deep": attention(1024, 80, ", attn_mask=m", BOOLEAN),
    "more rows than keys": attention(2048, 64, ", attn_mask=m", BOOLEAN, keys=513),
    "one key": attention(512, 64, "", keys=1),
    "scores by a function": Form(
        SOFTCAP, attention(1024, 64, mask=BIAS).arguments, "attend_sm90_kernel"
    ),
    "by mma.sync": attention(1024, 200, ", attn_mask=m", BOOLEAN, kernel="attend_mma_kernel"),
    "by mma.sync, causal": attention(1024, 24, ", is_causal=True", kernel="attend_mma_kernel"),
}
HALVES = "torch.randn({}).bfloat16()"
OTHERS = {
    "split product": Form(
        "torch.relu(x @ y.mT)",
        {"x": normal(2048, 2048), "y": normal(2048, 2048)},
        "contract_sm90_kernel",
        all_ours=True,
    ),
    "split product, odd sizes": Form(
        "torch.relu(x @ y.mT) + 1.0",
        {"x": normal(1023, 1999), "y": normal(515, 1999)},
        "op::",
        all_ours=True,
    ),
    "bfloat16 product": Form(
        "torch.relu(x @ y.mT)",
        {"x": HALVES.format("2048, 1024"), "y": HALVES.format("1024, 1024")},
        "op::",
        all_ours=True,
    ),
    "two new operands, few tiles": Form(
        "torch.relu(x @ y) + 1.0",
        {"x": normal(200, 20000), "y": normal(20000, 260)},
        "live_sm90_kernel",
        all_ours=True,
    ),
    "batched, few tiles": Form(
        "torch.relu(torch.bmm(x, y)) + 1.0",
        {"x": normal(3, 100, 2048), "y": normal(3, 2048, 64)},
        "op::",
        all_ours=True,
    ),
    "few rows": Form(
        "torch.relu(x @ y.mT)",
        {"x": normal(16, 8192), "y": normal(8192, 8192)},
        "op::",
        all_ours=True,
    ),
    "one row": Form(
        "torch.relu(x @ y.mT)",
        {"x": normal(1, 8192), "y": normal(8192, 8192)},
        "op::",
        all_ours=True,
    ),
    "scan of a few long rows": Form("torch.cumsum(x, -1)", {"x": normal(16, 1 << 20)}, "LookBack"),
    "scan of one axis": Form("torch.cumsum(x, 0)", {"x": normal(1 << 22)}, "LookBack"),
    "rows that all multiprocessors keep": Form(
        "x / x.abs().amax(-1, keepdim=True)", {"x": normal(300, 600004)}, "_device_kernel("
    ),
    "sum over all": Form("x.sum()", {"x": normal(4096, 4096)}, "op::"),
    "softmax of long rows": Form("torch.softmax(x, -1)", {"x": normal(64, 131072)}, "op::"),
    "variance over the first axis": Form("x.var(0)", {"x": normal(65536, 256)}, "op::"),
}


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., ModuleType]:
    def loaded(form: Form, *changes: Callable[[str], str]) -> ModuleType:
        with all_products_ours() if form.all_ours else nullcontext():
            _, new = write_pair(tmp_path, "repeated", form.text())
        text = new.read_text("utf-8")
        assert form.kernel in text, f"no {form.kernel} in this form"
        for change in changes:
            text = change(text)
        new.write_text(text, "utf-8")
        return load_file(new, text)

    return loaded


@dataclass(frozen=True)
class Runs:
    """How many runs differ from the first, the largest errors of all of them, of eager's one."""

    different: int
    error: float
    eager_error: float
    scale: float


def repeated(module: ModuleType, count: int) -> Runs:
    """The results are compared on the device, in memory that held the last ones but one."""
    torch.manual_seed(0)
    inputs = [x.cuda() for x in module.get_inputs()]
    model, original = module.ModelNew(), module.Model()
    with torch.no_grad():
        assert kernels_in(lambda: model(*inputs)) > 0, "the original ran"
        exact = original(*[x.double() if x.is_floating_point() else x for x in inputs])
        eager_error = (original(*inputs).double() - exact).abs().max()
        first = model(*inputs)
        different = torch.zeros((), dtype=torch.int64, device="cuda")
        error = torch.zeros((), dtype=torch.double, device="cuda")
        for _ in range(count):
            found: Tensor = model(*inputs)
            different += (found != first).any()
            error = torch.maximum(error, (found.double() - exact).abs().max())
    return Runs(int(different), error.item(), eager_error.item(), exact.abs().max().item())


def require_equal_and_exact(runs: Runs) -> None:
    print(runs)
    assert runs.different == 0
    assert runs.error <= 1.5 * runs.eager_error + runs.scale * 2.0**-24


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(load: Callable[..., ModuleType], name: str) -> None:
    require_equal_and_exact(repeated(load(ATTENTION[name]), RUNS_OF_ATTENTION))


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels(load: Callable[..., ModuleType], name: str) -> None:
    require_equal_and_exact(repeated(load(OTHERS[name]), RUNS))


STRESSED = [
    "512 keys of 64",
    "512 keys of 64, a mask",
    "512 keys of 128, a mask",
    "512 keys of 128, causal",
    "300 keys of 64, a bias",
]
STRESSES = {
    "sleeps everywhere": (stress.sleeping_everywhere,),
    "sleeps before waits": (stress.sleeping_before_waits,),
    "contention": (stress.with_contention,),
    "contention and sleeps": (stress.with_contention, stress.sleeping_before_waits),
}


@pytest.mark.parametrize("stressed", STRESSES)
@pytest.mark.parametrize("name", STRESSED)
def test_attention_under_stress(load: Callable[..., ModuleType], name: str, stressed: str) -> None:
    module = load(ATTENTION[name], *STRESSES[stressed])
    require_equal_and_exact(repeated(module, RUNS_OF_ATTENTION))


@pytest.mark.parametrize("stressed", ["sleeps before waits", "contention"])
def test_attention_as_it_was_is_wrong(load: Callable[..., ModuleType], stressed: str) -> None:
    """The stress shows what it is for."""
    form = ATTENTION["512 keys of 64, a mask"]
    runs = repeated(load(form, stress.as_it_was, *STRESSES[stressed]), RUNS)
    assert runs.different > 0
    assert runs.error > 1000 * runs.eager_error


def test_two_new_operands_whose_warps_sleep(load: Callable[..., ModuleType]) -> None:
    form = OTHERS["two new operands, few tiles"]
    require_equal_and_exact(repeated(load(form, stress.sleeping_before_waits), RUNS))


def test_split_product_whose_warps_sleep(load: Callable[..., ModuleType]) -> None:
    require_equal_and_exact(
        repeated(load(OTHERS["split product"], stress.sleeping_before_waits), RUNS)
    )
