"""Work that a call leaves behind, and work that does not wait, on a made-up device."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import pytest
import torch
from torch import nn

from opweld.judge.load import Call
from opweld.judge.process import environment
from opweld.judge.verify import stream_races
from opweld.judge.verify.stream_races import BehindWork, Leftovers, hide


@pytest.mark.parametrize(
    ("left", "quiet", "is_found"),
    [
        ([100.0] * 5, [0.01] * 5, True),
        ([0.02] * 5, [0.01] * 5, False),
        ([0.02, 80.0, 0.02], [0.01] * 3, False),  # a single pause of the host
        ([6.0, 9.0, 7.0], [5.0, 8.0, 6.0], False),  # a device that shares its time
        ([], [], False),
    ],
)
def test_work_left_on_other_streams(left: list[float], quiet: list[float], is_found: bool) -> None:
    leftovers = Leftovers()
    for times in zip(left, quiet, strict=True):
        leftovers.add(*times)
    clause = leftovers.clause()
    assert (clause is not None) == is_found
    assert clause is None or "100 ms" in clause


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the inputs hold whenever the stream is kept busy."""
    found: list[Any] = []
    monkeypatch.setattr(stream_races, "_STREAM", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(stream_races, "_SYNCHRONIZE", lambda: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: found.append(None))
    return found


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> Any:
        return {"all": x * 2, "some": [x[index], "text"]}


def test_inputs_get_their_values_behind_the_work(
    seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, index = torch.arange(6.0).view(2, 3), torch.tensor([1, 1])
    call, before = Call((x, index), {}), x.clone()
    monkeypatch.setattr(
        torch.cuda, "_sleep", lambda cycles: seen.append((cycles, x.clone(), index.clone()))
    )
    work = BehindWork(None)  # type: ignore[arg-type]
    outputs = work.forward(Doubled(), call)
    cycles, hidden, hidden_index = seen[-1]
    assert cycles > 10**7 and hidden.isnan().all() and not hidden_index.any()
    assert torch.equal(x, before) and index.tolist() == [1, 1]
    assert torch.equal(outputs["all"], before * 2)
    outputs["all"].zero_()  # what another stream does later is not what was there in time
    leaves = [outputs["all"], outputs["some"][0], "text"]
    work.take(leaves)
    assert torch.equal(leaves[0], before * 2) and leaves[2] == "text"
    assert torch.equal(leaves[1], before[[1, 1]])


def test_the_first_call_has_other_values(seen: list[Any]) -> None:
    given = []

    class Kept(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given.append(x.clone())
            return x

    x = torch.arange(4.0)
    BehindWork(None).warm_up(Kept(), Call((x,), {}))  # type: ignore[arg-type]
    assert given[0].tolist() == [3.0, 0.0, 1.0, 2.0] and x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_an_expanded_input_is_hidden_and_given_back(seen: list[Any]) -> None:
    x = torch.tensor([[1.0], [2.0]]).expand(2, 3)
    outputs = BehindWork(None).forward(nn.Identity(), Call((x,), {}))  # type: ignore[arg-type]
    assert outputs.tolist() == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex64, torch.int32, torch.bool])
def test_hidden_values(dtype: torch.dtype) -> None:
    t = torch.ones(3, dtype=dtype)
    hide(t)
    assert t.isnan().all() if dtype.is_floating_point or dtype.is_complex else not t.any()


@pytest.mark.parametrize(("status", "expected"), [(0, 2**24), (201, 0)])
def test_the_driver_is_asked_for_the_persisting_l2_cache(
    status: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Driver:
        def __init__(self, name: str) -> None:
            assert name == "libcuda.so.1"

        def cuCtxGetLimit(self, size: Any, limit: int) -> int:
            size._obj.value = 2**24 if limit == 6 else 1
            return status

    assert environment.global_settings()["persisting L2 cache"] == 0
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(ctypes, "CDLL", Driver)
    assert environment.global_settings()["persisting L2 cache"] == expected
