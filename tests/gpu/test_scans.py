"""Fused scans on the device: errors beside eager's, hard rows, layouts, the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.behaviour.emitted import CountCalls
from tests.gpu.building import SideBySide, built_side_by_side
from tests.gpu.reduction_models import Model, rows_of
from tests.gpu.test_reductions import LAYOUTS, Graded, hard_rows, pairs, parts, require_close
from torch import Tensor

from opweld.judge.numerics.compare import same_bits

pytestmark = pytest.mark.gpu

FRONT = "torch.cat([torch.zeros_like(x[..., :1]), x], -1)"
SUMS = {
    "cumsum": "x.cumsum(-1)",
    "reversed": "x.flip(-1).cumsum(-1).flip(-1)",
    "exclusive": f"torch.cumsum({FRONT}[..., :-1], -1)",
    "from the end, exclusive": f"torch.cumsum({FRONT.replace('x', 'x.flip(-1)')}[..., :-1], -1)",
    "longer": f"torch.cumsum({FRONT}, -1)",
    "masked": "torch.cumsum(x * (x > 0), -1) * 0.5 - x",
}
# Once NaN or infinite, a row stays so; without those, these round as eager does.
OTHERS = {
    "cumprod": "(1 + 0.01 * x).cumprod(-1)",
    "logcumsumexp": "x.logcumsumexp(-1)",
    "logcumsumexp reversed": "x.flip(-1).logcumsumexp(-1).flip(-1)",
}
EXTREMES = {
    "cummax": "x.cummax(-1).values, x.cummax(-1).indices",
    "cummin": "x.cummin(-1).values, x.cummin(-1).indices",
    "largest from the end": "x.flip(-1).cummax(-1).values.flip(-1)",
}
AXIS_1 = {
    "cumsum": "x.cumsum(1)",
    "reversed": "x.flip(1).cumsum(1).flip(1)",
    "cummax": "x.cummax(1).values, x.cummax(1).indices",
    "logcumsumexp": "x.logcumsumexp(1)",
}
AXIS_0 = {name: text.replace("(1)", "(0)") for name, text in AXIS_1.items()}
INTEGERS = {"cumsum": "x.cumsum(-1)", "cumprod": "x.cumprod(-1)", **EXTREMES}
# Around the edges of packets, teams and their chunks.
LENGTHS = (1, 8, 33, 256, 1000, 1025, 4096, 4099, 32768, 32769)
SOME = (7, 64, 1000, 1025, 8192)
MODELS = {
    "sums": rows_of(SUMS, LENGTHS),
    "others": rows_of(OTHERS, LENGTHS),
    "extremes": rows_of(EXTREMES, LENGTHS),
    "bfloat16": rows_of({**SUMS, **EXTREMES}, SOME, "bfloat16"),
    "float16": rows_of({**SUMS, **EXTREMES}, SOME, "float16"),
    "float64": rows_of({**SUMS, **OTHERS, **EXTREMES}, SOME, "float64"),
    "int64": rows_of(INTEGERS, SOME, "int64"),
    "bool": rows_of({"cumsum": "x.cumsum(-1)"}, SOME, "bool"),
    "columns": Model(AXIS_1, ((1, 8), (300, 3), (257, 64), (1000, 132), (40, 255))),
    "half columns": Model(AXIS_1, ((300, 8), (257, 64)), "bfloat16"),
    "any length": Model(AXIS_0, ((), (1,), (5,), (64,)), example=2**20),
    "many columns": Model(AXIS_0, ((16384,), (16387,)), example=256),
}
EXACT = ("int64", "bool")
OF_ANY_LENGTH = ("any length", "many columns")
ROWS = (1, 2, 131, 264, 1100)
SCANS = set("cumsum cumprod cummax cummin logcumsumexp flip cat".split())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    sources = {name: model.source for name, model in MODELS.items()}
    with built_side_by_side(sources, tmp_path_factory) as modules:
        yield modules


def require_near(label: str, new: Tensor, eager: Tensor) -> None:
    """Apart by no more than a chain of as many roundings: a random walk."""
    size = eager.double().nan_to_num(0, 0, 0).abs().amax(-1, keepdim=True).clamp_min(1)
    ratio = ((new.double() - eager.double()) / size).nan_to_num(0, 0, 0)
    limit = torch.finfo(eager.dtype).eps * max(8.0, eager.shape[-1] ** 0.5)
    assert ratio.abs().max() <= limit, label


GRADED = [n for n in MODELS if n not in (*EXACT, *OF_ANY_LENGTH, "float64")]


@pytest.mark.parametrize("name", GRADED)
def test_errors_are_no_larger_than_those_of_eager(built: SideBySide, name: str) -> None:
    """For any number of rows."""
    graded = Graded(built[name], MODELS[name])
    for rows in ROWS:
        graded.add(MODELS[name].draw(rows))
    graded.require()


@pytest.mark.parametrize("length", [1, 33, 4096, 100003, 1000000])
@pytest.mark.parametrize("name", OF_ANY_LENGTH)
def test_rows_of_any_length(built: SideBySide, name: str, length: int) -> None:
    """Few long ones are scanned in pieces."""
    if name == "many columns" and length > 4096:
        pytest.skip("of more memory than such a test should take")
    graded = Graded(built[name], MODELS[name])
    # What the parts of a row err by adds up along it: an error of one row is one throw of dice.
    for seed in range(2 if name == "many columns" else 8):
        graded.add(MODELS[name].draw(length, seed))
    graded.require()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", EXACT)
def test_integers_are_eagers(built: SideBySide, name: str, rows: int) -> None:
    for label, new, eager in pairs(built[name], MODELS[name], MODELS[name].draw(rows)):
        assert torch.equal(new, eager), label


@pytest.mark.parametrize("name", ["sums", "extremes", "bfloat16", "float64"])
def test_hard_rows(built: SideBySide, name: str) -> None:
    """NaN and infinities where eager has them, places of the last extreme or the last NaN."""
    model = MODELS[name]
    torch.manual_seed(5)
    args = [hard_rows(length, getattr(torch, model.dtype)) for (length,) in model.shapes]
    for label, new, eager in pairs(built[name], model, args):
        if not eager.is_floating_point():
            assert torch.equal(new, eager), label
            continue
        assert torch.equal(new.isnan(), eager.isnan()), label
        assert torch.equal(new.isinf(), eager.isinf()), label
        require_near(label, new, eager)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_layouts(built: SideBySide, name: str, layout: str) -> None:
    model = MODELS[name]
    args = [LAYOUTS[layout](x) for x in model.draw(4100 if model.example > 24 else 132)]
    if name in EXACT:
        for label, new, eager in pairs(built[name], model, args):
            require_close(label, new, eager)
        return
    if name == "float64":
        for label, new, eager in pairs(built[name], model, args):
            near = require_near if eager.is_floating_point() else require_close
            near(label, new, eager)
        return
    graded = Graded(built[name], model)
    graded.add(args)
    graded.require()


@pytest.mark.parametrize("rows", ROWS)
def test_double_precision(built: SideBySide, rows: int) -> None:
    model = MODELS["float64"]
    for label, new, eager in pairs(built["float64"], model, model.draw(rows)):
        near = require_near if eager.is_floating_point() else require_close
        near(label, new, eager)


@pytest.mark.parametrize("name", MODELS)
def test_no_scan_is_left_to_the_library(built: SideBySide, name: str) -> None:
    with CountCalls() as count, torch.no_grad():
        built[name].ModelNew()(*MODELS[name].draw(132))
    assert count.ours
    left = {call for call in count.others if call.split(".")[1] in SCANS}
    assert left <= ({"aten.flip.default"} if "sums" in name or "float" in name else set())


@pytest.mark.parametrize("name", MODELS)
def test_bits_are_the_same_in_every_run(built: SideBySide, name: str) -> None:
    model, new = MODELS[name], built[name].ModelNew()
    args = model.draw(100003 if name == "any length" else 264)
    with torch.no_grad():
        first = new(*args)
        for _ in range(4):
            found = parts(new(*args), model)
            for (label, ours), (_, before) in zip(found, parts(first, model), strict=True):
                assert same_bits(ours, before), label
