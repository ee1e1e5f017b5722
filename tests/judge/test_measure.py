"""Bytes, operations and the limit; samples; the kernels that a call runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from opweld.judge import kernels, measure
from opweld.judge.clock import MAX_RUNS, MIN_RUNS, _num_rounds, summarise, time_interleaved
from opweld.judge.load import Call, Pair
from opweld.judge.values import Settings

CPU = torch.device("cpu")


def test_the_limit_is_the_larger_of_moving_and_multiplying() -> None:
    ms, reason = measure.limit(2 * 10**9, 10**9, copy_gbps=4000, product_tflops=50)
    assert ms == pytest.approx(0.5)
    assert reason == "memory: 2000 MB at the copy's 4000 GB/s"
    ms, reason = measure.limit(10**6, 137 * 10**9, copy_gbps=4000, product_tflops=50)
    assert ms == pytest.approx(2.74)
    assert reason == "products: 137 GFLOP at 50 TFLOP/s"
    assert measure.limit(4 * 10**6, 0, 1000, None)[0] == pytest.approx(0.004)


def test_bytes_count_distinct_elements_once() -> None:
    model = nn.Linear(8, 4, bias=False)
    x = torch.ones(16, 8)
    with torch.no_grad():
        out = model(x)
    call = Call((x, x), {})
    assert measure.moved_bytes(model, call, [out, out]) == 4 * (8 * 4 + 16 * 8 + 16 * 4)
    assert measure.touched_bytes(torch.ones(1, 8).expand(100, 8)) == 32
    assert measure.touched_bytes(torch.ones(0, 8, dtype=torch.float16)) == 0
    with torch.no_grad():
        assert measure.product_flops(model, Call((x,), {})) == 2 * 16 * 8 * 4


def test_samples_are_quantiles() -> None:
    samples = summarise([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (samples.median, samples.n) == (3.0, 5)
    assert (samples.p10, samples.p90) == (pytest.approx(1.4), pytest.approx(4.6))


def test_rounds_call_each_once_in_rotating_order() -> None:
    called: list[str] = []
    actions = {name: lambda name=name: called.append(name) for name in "abc"}
    samples = time_interleaved(actions, CPU, budget_s=1.0, num_runs=4)
    assert {name: s.n for name, s in samples.items()} == {"a": 4, "b": 4, "c": 4}
    assert "".join(called[-12:]) == "abcbcacababc"


def test_the_number_of_rounds_follows_the_budget() -> None:
    assert _num_rounds(100.0, budget_s=2.0) == 20
    assert _num_rounds(1e6, budget_s=2.0) == MIN_RUNS
    assert _num_rounds(0.0, budget_s=2.0) == MAX_RUNS
    assert _num_rounds(1e6, budget_s=2.0, limit_s=2500.0) == 2
    assert _num_rounds(1e6, budget_s=2.0, limit_s=1.0) == 1


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            raise ValueError("not while compiling")
        return x + 1


def test_a_baseline_that_fails_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: nn.Module) -> nn.Module:
        raise RuntimeError("no backend")

    monkeypatch.setattr(torch, "compile", refuse)
    monkeypatch.setattr(measure, "COPY_ELEMS", {"cpu": 2**10})
    model, path = Broken(), Path("m.py")
    pair = Pair(model, model, torch, path, path, CPU, None)
    settings = Settings(device="cpu", num_runs=3)
    timing = measure.measure(pair, Call((torch.ones(4),), {}), settings, lambda who, what: None)
    assert timing.compile_ms is None and timing.eager_ms is not None
    assert timing.notes == ("torch.compile failed: RuntimeError: no backend",)
    assert timing.speedup_vs_compile is None and timing.product_tflops is None
    assert timing.limit_ms == pytest.approx(32 / timing.copy_gbps / 1e6)


@pytest.fixture(scope="module")
def doubling():  # type: ignore[no-untyped-def]
    library = torch.library.Library("opweld_judge_test", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x + x, "CompositeExplicitAutograd")
    yield torch.ops.opweld_judge_test.double
    library._destroy()


def test_kernels_are_counted_and_timed_on_their_own_arguments(doubling) -> None:  # type: ignore[no-untyped-def]
    class Doubling(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return doubling(doubling(x)) + doubling(x[:1])

    launches = kernels.record(Doubling(), Call((torch.ones(10, 4),), {}))
    assert kernels.count(launches) == {"double": 3}
    assert [launch.calls for launch in launches] == [2, 1], "one row for each shape"
    assert launches[0].touched_bytes() == 2 * 160
    row = kernels.time_launch(launches[0], CPU, copy_gbps=10.0, num_runs=3)
    assert (row.name, row.calls, row.bytes) == ("double", 2, 320)
    assert row.ms and row.limit_percent == pytest.approx(100 * 320 / 10.0 / 1e6 / row.ms)
    assert kernels.untimed(launches[1]).ms is None


def _double_in_place(x: torch.Tensor) -> None:
    x.add_(x)


def test_what_is_written_in_place_is_read_and_written() -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            doubling_library.double_into(x.clone())
            return x

    library = torch.library.Library("opweld_judge_test_into", "DEF")
    library.define("double_into(Tensor(a!) x) -> ()")
    library.impl("double_into", _double_in_place, "CompositeExplicitAutograd")
    doubling_library = torch.ops.opweld_judge_test_into
    (launch,) = kernels.record(InPlace(), Call((torch.ones(4),), {}))
    assert launch.touched_bytes() == 2 * 16
    library._destroy()


def test_a_model_without_kernels_has_no_rows() -> None:
    assert kernels.record(nn.ReLU(), Call((torch.ones(3),), {})) == ()


def test_a_time_below_the_limit_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that does nothing beats any honest bound."""
    monkeypatch.setattr(measure, "copy_gbps", lambda device: 1e-6)
    model, path = nn.ReLU(), Path("m.py")
    pair = Pair(model, nn.Identity(), torch, path, path, CPU, None)
    settings = Settings(device="cpu", num_runs=1, baselines=())
    timing = measure.measure(pair, Call((torch.ones(4),), {}), settings, lambda who, what: None)
    assert timing.limit_ms == pytest.approx(32.0)
    assert timing.notes and timing.notes[0].startswith("ModelNew is faster than the limit")
