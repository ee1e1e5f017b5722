"""Models of the table with kernels for gradients: all of them are eager's."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch
from tests.behaviour.emitted import kernels_in, leaves
from tests.models import training
from tests.models.cases import BATCH, CASES, Case
from tests.models.comparing import assert_same_gradients
from tests.models.emitted import emit_case, emit_module
from tests.models.test_training import assert_trains, images
from torch import nn

from opweld.driver import compile_module
from opweld.ir.original import Original
from opweld.options import Options

# Of 16 bits, whose clamps eager decides by what has been rounded before; and one whose batch may
# not be empty in PyTorch's own backward.
LEFT_OUT = {"TwoHalves", "Patches"}
TABLE = [case for case in CASES if case.gradients and case.name not in LEFT_OUT]
QUICK = 8  # each so many; the others take minutes


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[] if place % QUICK == 0 else pytest.mark.slow)
        for place, case in enumerate(TABLE)
    ],
)
def test_gradients_are_eagers(case: Case, tmp_path: Path) -> None:
    emitted = emit_case(case, tmp_path, training=True)
    for batch in (BATCH, *case.batches[:2]):
        torch.manual_seed(5)
        args, kwargs = case.call(batch)
        assert_same_gradients(emitted.new, emitted.original, args, kwargs, case.coarse)


def test_most_have_kernels_for_gradients(tmp_path: Path) -> None:
    made = [emit_case(case, tmp_path, training=True) for case in TABLE[::QUICK]]
    with_kernels = [each for each in made if "_backward(_kernels" in each.compiled.text]
    assert len(with_kernels) > len(made) // 2


def norms_calls() -> list[tuple[torch.Tensor, ...]]:
    torch.manual_seed(2)
    return [training.norms_call(batch) for batch in (6, 9)]


@pytest.mark.parametrize(
    ("model", "calls"),
    [
        pytest.param(training.Residual, [(images(6),), (images(5),)], marks=pytest.mark.slow),
        pytest.param(training.Norms, norms_calls(), marks=pytest.mark.slow),
        pytest.param(
            training.Frozen,
            [(torch.randn(16, 5),), (torch.randn(9, 5),)],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["Residual", "Norms", "Frozen"],
)
def test_norms_in_training(
    model: type[nn.Module], calls: list[tuple[torch.Tensor, ...]], tmp_path: Path
) -> None:
    """Their statistics, which kernels leave, and their gradients."""
    torch.manual_seed(1)
    emitted = emit_module(model().eval(), (calls[0], {}), tmp_path, mode="both", training=True)
    assert_trains(emitted, calls)
    results = copy.deepcopy(emitted.new).train()(*(x.clone().requires_grad_() for x in calls[0]))
    total = sum(result.sum() for result in leaves(results))
    assert kernels_in(total.backward) > 0


def test_several_kernels_under_one_gradient_have_one_backward(tmp_path: Path) -> None:
    """A norm whose result another kernel condenses: no part has a backward of its own."""
    torch.manual_seed(1)
    args = ((images(6),), {})
    emitted = emit_module(training.Residual().eval(), args, tmp_path, mode="both", training=True)
    assert "_k2_k3_sum_mul_training_backward(_kernels, _need" in emitted.compiled.text
    assert "training_of_k2_k3" in emitted.compiled.text
    assert not re.search(r"training_of_k[23]\b(?!_)", emitted.compiled.text)


@pytest.mark.parametrize(
    "kind", [pytest.param(training.Twice, marks=pytest.mark.slow), training.OnTwoLines]
)
def test_kernels_that_are_alike_share_their_one_backward(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    torch.manual_seed(1)
    module, calls = kind().eval(), [(images(6),), (images(4, 3),)]
    emitted = emit_module(module, (calls[0], {}), tmp_path, mode="both", training=True)
    written = re.findall(r"^def _(k\d_k\d)_\w+_backward\(_kernels", emitted.compiled.text, re.M)
    assert len(written) == 1
    assert emitted.compiled.text.count("=lambda op: _in_one_span(") == 1
    assert_trains(emitted, calls, graded=False)


def test_the_forward_makes_no_reduction_that_the_backward_needs(tmp_path: Path) -> None:
    emitted = emit_module(training.Places().eval(), ((images(6),), {}), tmp_path, training=True)
    for batch in (6, 3):
        assert_same_gradients(emitted.new, emitted.original, (images(batch),), {})


def test_a_norm_in_training_has_two_kernels_behind_it() -> None:
    """Its sums, and the rest: where rows are cut in pieces, too."""
    module = nn.Sequential(nn.BatchNorm2d(64), nn.ReLU()).train()
    original = Original("norm.py", "torch.nn", "Sequential", None)
    options = Options(target="sm_90a", check=False, training=True)
    made = compile_module(module, (torch.randn(64, 64, 56, 56),), {}, original, options)
    plan = made.stages["plan"].partition("backward of k1_k2_")[2]
    kinds = re.findall(r"^k\d+_\w+_of_k1_k2  (\w+)", plan, re.M)
    assert kinds == ["reduction", "pointwise"]
