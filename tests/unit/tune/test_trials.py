"""Timing kernels of several files: which are called with what, and how products are compared.

Files are modules made here, whose operators only count; the clock is told what each takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from opweld.errors import UnsupportedTarget
from opweld.ir.kernels.product import Mode
from opweld.ir.measured import Maker, PointwiseClass, ProductClass, Tunable
from opweld.ir.plan import PointwiseSchedule
from opweld.ir.types import DType
from opweld.judge.values import Samples
from opweld.options import Options
from opweld.target import CPU, SM_90A
from opweld.tune.search import COPY, NOT_RUN, Bench, BuiltFile, candidates
from opweld.tune.trials import Stopwatch, device_for

CPU_DEVICE = torch.device("cpu")
FIRST, WIDE, MANY = (PointwiseSchedule(*each) for each in ((4, 1, 128), (8, 1, 128), (4, 4, 128)))
SHAPE = PointwiseClass(DType.F32, 4, 1, 1, "memory")
OTHER = replace(SHAPE, elems=5)
PRODUCT = ProductClass(Mode.FAITHFUL, 2, 2, 2, 0, True, True)
NUMBERS = itertools.count()


class File:
    """A file whose kernels note each call in `calls`; its ModelNew runs `groups` in order."""

    def __init__(self, *groups: str, rest: int = 0) -> None:
        self.calls: list[str] = []
        namespace = f"opweld_fake{next(NUMBERS)}"
        self._library = torch.library.Library(namespace, "DEF")
        for group in groups:
            self._library.define(f"{group}(Tensor x) -> Tensor")
            self._library.impl(group, self._kernel(group), "CPU")
        self.module = self._module(getattr(torch.ops, namespace), groups)

    def _kernel(self, group: str):
        def run(x: torch.Tensor) -> torch.Tensor:
            self.calls.append(group)
            return x + 1.0

        return run

    def _module(self, ops: object, groups: tuple[str, ...]) -> SimpleNamespace:
        calls = self.calls

        class ModelNew(torch.nn.Module):
            def __init__(self, size: int) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(size))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                calls.append("forward")
                for group in groups:
                    x = getattr(ops, group)(x)
                return x

        ModelNew._opweld = SimpleNamespace(op=lambda name: getattr(ops, name).default)
        return SimpleNamespace(
            ModelNew=ModelNew,
            get_init_inputs=lambda: [3],
            get_inputs=lambda: [torch.ones(4)],
        )

    def built(self, *tried, groups=None) -> BuiltFile:
        return BuiltFile(self.module, tuple(tried), groups or {})


class Clock(Stopwatch):
    """Calls each action once; they take what `ms` says, by name."""

    def __init__(self, **ms: float) -> None:
        super().__init__(CPU_DEVICE, 0.0, 1)
        self.ms, self.asked = ms, []

    def __call__(self, actions, budget_s):
        self.asked.append(tuple(actions))
        for action in actions.values():
            action()
        values = {name: self.ms[name] for name in actions}
        return {name: Samples(ms, ms - 0.001, ms + 0.001, 9) for name, ms in values.items()}


@pytest.fixture
def three() -> Iterator[list[File]]:
    yield [File("k1_add", "k2_add", "k3_exp") for _ in range(3)]


def bench(clock: Clock, *built: BuiltFile) -> Bench:
    return Bench(Path("m.py"), Options(), CPU_DEVICE, built, clock)


def test_each_schedule_runs_the_kernels_of_its_file(three: list[File]) -> None:
    first, wide, many = three
    tunable = Tunable(SHAPE, ("k1_add", "k2_add"), FIRST, (FIRST, WIDE, MANY))
    clock = Clock(**{COPY: 0.5, str(FIRST): 1.0, str(WIDE): 0.8, str(MANY): 2.0})
    built = first.built(), wide.built((SHAPE, WIDE)), many.built((OTHER, WIDE), (SHAPE, MANY))
    found = bench(clock, *built).decision(tunable)
    assert found.proposed and found.copy_us == 500
    assert [trial.schedule for trial in found.trials] == [str(WIDE), str(FIRST), str(MANY)]
    assert clock.asked == [(str(FIRST), str(WIDE), str(MANY), COPY), (str(WIDE), str(FIRST))]
    assert wide.calls == ["k1_add", "k2_add"] * 2
    assert many.calls == ["k1_add", "k2_add"]
    assert first.calls == ["forward", "k1_add", "k2_add", "k3_exp"] + ["k1_add", "k2_add"] * 2


def test_a_schedule_that_could_not_be_built_is_left_out(three: list[File]) -> None:
    tunable = Tunable(SHAPE, ("k1_add",), FIRST, (FIRST, WIDE, MANY))
    clock = Clock(**{COPY: 0.5, str(FIRST): 1.0, str(MANY): 2.0})
    found = bench(clock, three[0].built(), three[2].built((SHAPE, MANY))).decision(tunable)
    assert [trial.schedule for trial in found.trials] == [str(FIRST), str(MANY)]
    assert not found.proposed


def test_a_kernel_that_does_not_run_is_said() -> None:
    tunable = Tunable(SHAPE, ("k1_add", "k9_exp"), FIRST, (FIRST,))
    found = bench(Clock(), File("k1_add").built()).decision(tunable)
    assert (found.trials, found.proposed, found.said) == ((), False, NOT_RUN)


@pytest.mark.parametrize("current", Maker)
def test_products_are_compared_by_forwards_less_the_rest(current: Maker) -> None:
    """ours: 5 ms, of which 2 are the product's kernel; so the library's 8 ms are 5 for it."""
    ours, library = File("k1_linear", "k2_exp"), File("k1_exp", "k2_exp")
    other = next(iter({*Maker} - {current}))
    files = {Maker.OURS: ours, Maker.LIBRARY: library}
    names = {Maker.OURS: {PRODUCT: ("k1_linear",)}, Maker.LIBRARY: {PRODUCT: ("linear",)}}
    clock = Clock(alone=2.0, ours=5.0, library=8.0)
    found = bench(
        clock,
        files[current].built(groups=names[current]),
        files[other].built((PRODUCT, other), groups=names[other]),
    ).decision(Tunable(PRODUCT, names[current][PRODUCT], current, (current, other)))
    assert [(trial.schedule, trial.us) for trial in found.trials] == [
        ("ours", 2000),
        ("library", 5000),
    ]
    assert found.proposed is (current is Maker.LIBRARY)
    assert clock.asked[0] == ("alone",)
    assert ours.calls[:4] == ["forward", "k1_linear", "k2_exp", "k1_linear"]


def test_both_models_of_a_product_share_their_weights() -> None:
    ours, library = File("k1_linear"), File("k1_exp")
    files = (
        ours.built(groups={PRODUCT: ("k1_linear",)}),
        library.built((PRODUCT, Maker.LIBRARY), groups={PRODUCT: ("linear",)}),
    )
    table = bench(Clock(alone=1.0, ours=1.0, library=1.0), *files)
    stages = [table._stage(file) for file in files]
    weights = [each.model.weight.data_ptr() for each in stages]
    assert weights[0] == weights[1] and stages[0].call is stages[1].call


def test_a_product_without_a_kernel_of_ours_is_said() -> None:
    built = File("k1_exp").built(groups={PRODUCT: ("linear",)})
    tunable = Tunable(PRODUCT, ("linear",), Maker.LIBRARY, (Maker.LIBRARY, Maker.OURS))
    assert bench(Clock(), built).decision(tunable).said == NOT_RUN


def test_candidates_try_all_pointwise_classes_at_once_and_products_one_by_one() -> None:
    found = (
        Tunable(SHAPE, ("k1",), FIRST, (FIRST, WIDE, MANY)),
        Tunable(OTHER, ("k2",), WIDE, (WIDE, FIRST)),
        Tunable(PRODUCT, ("k3",), Maker.OURS, (Maker.OURS, Maker.LIBRARY)),
    )
    assert candidates(found) == (
        (),
        ((SHAPE, WIDE), (OTHER, FIRST)),
        ((SHAPE, MANY),),
        ((PRODUCT, Maker.LIBRARY),),
    )
    assert candidates(found[2:]) == ((), ((PRODUCT, Maker.LIBRARY),))


def test_the_clock_keeps_to_the_time_that_is_left() -> None:
    """Nothing is left: one run each, of the judge's own clock, where there would be 200."""
    late = Stopwatch(CPU_DEVICE, until_s=10.0, num_classes=2, now=lambda: 11.0)
    early = Stopwatch(CPU_DEVICE, until_s=1e9, num_classes=2, now=lambda: 11.0)
    action = {"sum": lambda: torch.ones(8).sum()}
    assert late(action, 1.0)["sum"].n == 1
    assert early(action, 1.0)["sum"].n > 5


def test_only_the_own_device_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_for(CPU) == CPU_DEVICE
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnsupportedTarget, match="schedules for sm_90a can be measured"):
        device_for(SM_90A)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.raises(UnsupportedTarget):
        device_for(SM_90A)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert device_for(SM_90A) == torch.device("cuda", 1)
