"""Reads by the numbers of an index on the device: values, layouts, gradients, what is not there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.behaviour.emitted import CountCalls
from tests.gpu.building import SideBySide, built_side_by_side
from tests.gpu.pick_models import EXAMPLE, MODELS
from tests.gpu.sanitizing import LOADED
from tests.gpu.test_reductions import LAYOUTS
from tests.models.comparing import (
    assert_close,
    assert_delivered,
    assert_same_form,
    assert_same_gradients,
    float64_run,
    tensors,
)
from torch import Tensor, nn

from opweld.process.worker import child_environment

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
# Of fewer errors than `FEW` no grade tells anything.
FEW = 32
PICKING = set("embedding index_select index gather take_along_dim one_hot scatter_".split())
PICKING |= set("nll_loss nll_loss_nd nll_loss2d nll_loss_forward nll_loss2d_forward".split())
PICKING |= set("cross_entropy_loss log_softmax _log_softmax native_layer_norm".split())
# A score or a weight of a class that several results read is the library's.
PARTLY = ("scores", "mean scores", "scores of planes")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    sources = {name: model.source for name, model in MODELS.items()}
    with built_side_by_side(sources, tmp_path_factory) as modules:
        yield modules


def both(module: ModuleType) -> tuple[nn.Module, nn.Module]:
    """The new model and the original, with the same parameters."""
    made = []
    for kind in (module.ModelNew, module._Original):
        torch.manual_seed(3)
        made.append(kind().to(DEVICE).eval())
    return made[0], made[1]


def require_right(module: ModuleType, args: Sequence[Tensor]) -> None:
    """Integers are eager's, floats as near to float64 as eager's."""
    new, original = both(module)
    with torch.no_grad():
        ours, theirs = new(*args), original(*args)
        exact = float64_run(original, args, {})
    for mine, eager, truth in zip(tensors(ours), tensors(theirs), exact, strict=True):
        assert (mine.dtype, mine.shape) == (eager.dtype, eager.shape)
        if not eager.is_floating_point():
            assert torch.equal(mine, eager)
        elif eager.numel() < FEW or truth is None:
            assert_close(mine, eager)
        else:
            assert_delivered(mine, eager, truth)


@pytest.mark.parametrize("batch", [1, EXAMPLE, 300])
@pytest.mark.parametrize("name", MODELS)
def test_values(built: SideBySide, name: str, batch: int) -> None:
    """Gathers are exported for one batch: others are the original's there."""
    require_right(built[name], MODELS[name].draw(batch, DEVICE))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_layouts(built: SideBySide, name: str, layout: str) -> None:
    """Of what is read, and of the indices."""
    require_right(built[name], [LAYOUTS[layout](x) for x in MODELS[name].draw(EXAMPLE, DEVICE)])


@pytest.mark.parametrize("name", MODELS)
def test_an_empty_index(built: SideBySide, name: str) -> None:
    new, original = both(built[name])
    args = MODELS[name].draw(0, DEVICE)
    with torch.no_grad():
        ours, theirs = new(*args), original(*args)
    assert_same_form(ours, theirs)
    assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["scores", "mean scores", "summed scores", "scores of planes"])
def test_ignored_classes(built: SideBySide, name: str) -> None:
    """Of some rows, and of all, where a mean is of nothing."""
    x, w, y = MODELS[name].draw(130, DEVICE)
    require_right(built[name], [x, w, torch.where(y % 3 == 0, 5, y)])
    require_right(built[name], [x, w, torch.full_like(y, 5)])


def test_numbers_that_count_from_the_end(built: SideBySide) -> None:
    """Where this torch lets take_along_dim's do so."""
    try:
        torch.take_along_dim(torch.zeros(1), torch.tensor([-1]), 0)
    except RuntimeError:
        pytest.skip("take_along_dim of this torch takes no number below zero")
    new, original = both(built["along"])
    x, columns = MODELS["along"].draw(EXAMPLE, DEVICE)
    with torch.no_grad():
        assert_close(new(x, columns - 60), original(x, columns))


@pytest.mark.parametrize("name", MODELS)
def test_no_read_is_left_to_the_library(built: SideBySide, name: str) -> None:
    new, _ = both(built[name])
    with CountCalls() as count, torch.no_grad():
        new(*MODELS[name].draw(EXAMPLE, DEVICE))
    assert count.ours
    left = {call for call in count.others if call.split(".")[1] in PICKING}
    assert name in PARTLY or not left


@pytest.mark.parametrize("name", ["embedding", "gathers", "selections", "along"])
def test_gradients_are_those_of_eager(built: SideBySide, name: str) -> None:
    new, original = both(built[name])
    assert_same_gradients(new, original, MODELS[name].draw(EXAMPLE, DEVICE), {})


# Prints how the call ended, and leaves at once: the context is of no use any more.
CHILD = f"""{LOADED}import os
args = torch.load(sys.argv[2])
args[-1].view(-1)[-1] = int(sys.argv[3])
with torch.no_grad():
    model = emitted.ModelNew().cuda()
    try:
        model(*(x.cuda() for x in args))
        torch.cuda.synchronize()
        print("SILENT", flush=True)
    except RuntimeError as error:
        print("ENDED", error, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("embedding", 50),
        ("embedding by int32", -1),
        ("gathers", 60),
        ("from either end", -61),
        ("classes", 12),
    ],
)
def test_a_number_of_no_element_ends_in_an_error(
    built: SideBySide, name: str, number: int, tmp_path: Path
) -> None:
    args = tmp_path / "args.pt"
    torch.save(MODELS[name].draw(EXAMPLE, "cpu"), args)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(built[name].__file__), str(args), str(number)],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout[-2000:] + done.stderr[-2000:]
    assert "ENDED" in done.stdout, said
    assert "device-side assert" in done.stdout, said
