"""Each form of the kernels of convolutions by itself, on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.emulation.convolutions import (
    Case,
    Form,
    drawn,
    require_as_exact,
    require_faithful,
    windows,
)
from tests.gpu.forms import Builds, built_side_by_side, on_the_device

pytestmark = pytest.mark.gpu

FORMS = {
    "plane, 64": Form(),
    "plane, 128": Form(columns=128),
    "space, 64": Form(space=3),
    "space, 128": Form(space=3, columns=128),
    "plane, 64, faithful": Form("Faithful"),
    "plane, 128, faithful": Form("Faithful", columns=128),
    "space, 64, faithful": Form("Faithful", space=3),
    "plane, 64, joined": Form(rows=6),
    "plane, 128, joined": Form(columns=128, rows=6),
    "space, 64, joined": Form(space=3, rows=6),
    "plane, 64, of 32 channels": Form(width=32),
    "plane, 128, of 32 channels": Form(columns=128, width=32),
    "plane, 64, of 16 channels": Form(width=16),
    "plane, 128, of 16 channels": Form(columns=128, width=16),
    "space, 64, of 16 channels": Form(space=3, width=16),
    "plane, 64, joined, of 16": Form(rows=6, width=16),
    "space, 64, joined, of 32": Form(space=3, rows=6, width=32),
}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builds]:
    """A library of each form; all are built side by side."""
    yield from built_side_by_side(FORMS, tmp_path_factory)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("seed", range(40))
def test_a_form_makes_any_windows(builds: Builds, name: str, seed: int) -> None:
    form = FORMS[name]
    is_faithful = form.mode == "Faithful"
    case = drawn(seed, 3 if form.space == 3 else seed % 2 + 1, many=is_faithful)
    if form.rows:  # whole steps of all the strides
        channels = (1, 2, 3, 7, 16, 31)
        case = replace(case, channels=channels[seed % len(channels)])
    x, weight = case.operands
    found = on_the_device(builds[name].result(), form, case, x, weight)
    require = require_faithful if is_faithful else require_as_exact
    require(found, x, weight, case.how)


@pytest.mark.parametrize("rows", [127, 128, 129, 255, 256, 257, 40000])
@pytest.mark.parametrize(
    "name",
    [
        "plane, 64",
        "plane, 128",
        "plane, 64, of 32 channels",
        "plane, 128, of 32 channels",
        "plane, 64, of 16 channels",
        "plane, 128, of 16 channels",
    ],
)
def test_a_form_at_the_edges_of_tiles(builds: Builds, name: str, rows: int) -> None:
    form = FORMS[name]
    case = Case(1, 70, (rows,), 65, (3,), windows(1, 1, 1))
    x, weight = case.operands
    found = on_the_device(builds[name].result(), form, case, x, weight, calls=200)
    require_as_exact(found, x, weight, case.how)
