"""Emitted CUDA files on a device: streams, device indices, CUDA graphs, autocast, layouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import (
    NUM_KERNELS,
    Pair,
    kernels_in,
    leaves,
    make_pair,
    profiled_kernels,
)
from tests.behaviour.models import SOURCES

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cuda_pairs(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("cuda")
    return {name: make_pair(name, folder, "sm_90a") for name in SOURCES}


@pytest.fixture(params=tuple(SOURCES))
def cuda(request: pytest.FixtureRequest, cuda_pairs: dict[str, Pair]) -> Pair:
    return cuda_pairs[request.param]


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def on_device(pair: Pair, device: str = "cuda", batch: int | None = None) -> tuple[Any, Any, Any]:
    old, new = (model.to(device) for model in pair.models())
    return old, new, [x.to(device) for x in pair.inputs(batch)]


def assert_same(new: Any, old: Any) -> None:
    for ours, theirs in zip(leaves(new), leaves(old), strict=True):
        torch.testing.assert_close(ours, theirs, check_stride=True)


@pytest.mark.parametrize("batch", [0, 1, 7, 1000])
def test_any_batch_size(cuda: Pair, batch: int) -> None:
    old, new, inputs = on_device(cuda, batch=batch)
    with torch.no_grad():
        assert_same(new(*inputs), old(*inputs))
        assert kernels_in(lambda: new(*inputs)) == NUM_KERNELS[cuda.name]


def test_layouts(cuda: Pair) -> None:
    old, new, inputs = on_device(cuda, batch=33)
    column_major = [x.t().contiguous().t() for x in inputs]
    every_second = [x.repeat_interleave(2, dim=1)[:, ::2] for x in inputs]
    shifted = [torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape) for x in inputs]
    with torch.no_grad():
        for changed in (column_major, every_second, shifted):
            assert_same(new(*changed), old(*changed))
            assert kernels_in(lambda: new(*changed)) == NUM_KERNELS[cuda.name]  # noqa: B023


def test_another_stream(cuda: Pair) -> None:
    """The producer is still running on the other stream when the kernel is launched there."""
    old, new, inputs = on_device(cuda, batch=256)
    with torch.no_grad():
        expected = old(*[x + 1 for x in inputs])
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            got = new(*[x + 1 for x in inputs])
        torch.cuda.current_stream().wait_stream(stream)
        assert_same(got, expected)


def test_another_device_index(cuda: Pair) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    old, new, inputs = on_device(cuda, "cuda:1")
    assert torch.cuda.current_device() == 0
    with torch.no_grad():
        assert_same(new(*inputs), old(*inputs))
        assert kernels_in(lambda: new(*inputs)) == NUM_KERNELS[cuda.name]
    assert torch.cuda.current_device() == 0


def test_graph_capture_and_replay_after_a_weight_change(cuda: Pair) -> None:
    old, new, inputs = on_device(cuda)
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                new(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = new(*inputs)
        for model in (old, new):
            for parameter in model.parameters():
                parameter.mul_(1.5)
        for x in inputs:
            x.add_(0.25)
        graph.replay()
        torch.cuda.synchronize()
        assert_same(captured, old(*inputs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(cuda: Pair, dtype: torch.dtype) -> None:
    old, new, inputs = on_device(cuda)
    with torch.no_grad():
        exact = old(*inputs)
        with torch.autocast("cuda", dtype=dtype):
            assert kernels_in(lambda: new(*inputs)) == NUM_KERNELS[cuda.name]
            found = zip(leaves(new(*inputs)), leaves(old(*inputs)), leaves(exact), strict=True)
    for ours, theirs, true in found:
        assert ours.dtype == theirs.dtype
        errors = [
            float((v.double() - true.double()).square().mean().sqrt()) for v in (ours, theirs)
        ]
        assert errors[0] <= 1.25 * errors[1] + 1e-7


def test_gradients(cuda: Pair) -> None:
    old, new, inputs = on_device(cuda)
    found = []
    for model in (old, new):
        xs = [x.clone().requires_grad_() for x in inputs]
        loss = sum((leaf * leaf.detach().cos()).sum() for leaf in leaves(model(*xs)))
        found.append(torch.autograd.grad(loss, [*xs, *model.parameters()]))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile_without_graph_break(cuda: Pair, mode: str) -> None:
    torch._dynamo.reset()
    old, new, inputs = on_device(cuda)
    compiled = torch.compile(new, fullgraph=True, mode=mode)
    with torch.no_grad():
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            assert_same(compiled(*inputs), old(*inputs))
    if mode == "default":
        with torch.no_grad():
            assert profiled_kernels(lambda: compiled(*inputs)) == NUM_KERNELS[cuda.name]


def test_fused_optimiser(cuda_pairs: dict[str, Pair]) -> None:
    old, new, inputs = on_device(cuda_pairs["linear"])
    for model in (old, new):
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
        for _ in range(3):
            optimiser.zero_grad()
            model(*inputs).square().sum().backward()
            optimiser.step()
    with torch.no_grad():
        assert_same(new(*inputs), old(*inputs))


def test_operands_on_the_cpu_go_to_the_original(cuda: Pair) -> None:
    _, new, _ = on_device(cuda)
    new.cpu()
    inputs = cuda.inputs()
    with torch.no_grad():
        assert kernels_in(lambda: new(*inputs)) == 0
