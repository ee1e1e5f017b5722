"""Long rows that all multiprocessors keep together, on the device."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from tests.gpu.emitting import cuda_of, emitted_module
from tests.gpu.test_reductions import hard_rows, require_close, shifted
from torch import Tensor

from opweld.judge.numerics.compare import same_bits

pytestmark = pytest.mark.gpu

TEXT = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(length))

    def forward(self, x):
        scale = torch.rsqrt(torch.mean(x * x, -1, keepdim=True) + 1e-5)
        return x * scale * self.weight, x / x.abs().amax(-1, keepdim=True), {more}

def get_inputs():
    return [torch.empty(300, {length})]

def get_init_inputs():
    return [{length}]
"""
# As long as can be, and one whose last packets not all blocks have.
LENGTHS = (2097152, 600004)
MORE = "x / torch.relu(x).sum(-1, keepdim=True)"


@pytest.fixture(scope="module", params=LENGTHS)
def module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    text = TEXT.format(length=request.param, more=MORE)
    made = emitted_module(tmp_path_factory.mktemp("rows"), f"rows{request.param}", text)
    assert made.ModelNew._opweld.devices and "_device_kernel(" in cuda_of(made)
    made.length = request.param
    return made


@pytest.fixture(scope="module")
def models(module: ModuleType) -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(1)
    new = module.ModelNew(module.length).cuda().eval()
    eager = module._Original(module.length).cuda().eval()
    eager.load_state_dict(new.state_dict())
    return new, eager


def drawn(num_rows: int, length: int, seed: int = 0) -> Tensor:
    made = torch.Generator("cuda").manual_seed(seed)
    scales = torch.rand(num_rows, 1, device="cuda", generator=made) * 4 + 0.1
    return torch.randn(num_rows, length, device="cuda", generator=made) * scales + 0.5


def poison(like: tuple[Tensor, ...]) -> None:
    """Fills the memory that the next results get."""
    junk = [torch.full_like(each, float("nan")) for each in like]
    del junk


def test_errors_beside_those_of_eager(models, module: ModuleType) -> None:
    """Over many rows: what a sum errs by is one draw for all of its row."""
    new, eager = models
    ours, library = torch.zeros(2, 3, dtype=torch.double)
    with torch.no_grad():
        for seed, num_rows in enumerate((1, 2, 3, 7, 40, 40, 40)):
            x = drawn(num_rows, module.length, seed)
            exact = eager.double()(x.double())
            theirs = eager.float()(x)
            poison(theirs)
            results = zip(new(x), theirs, exact, strict=True)
            for place, (mine, other, truth) in enumerate(results):
                scale = truth.abs().amax()
                ours[place] += ((mine - truth) / scale).square().sum().cpu()
                library[place] += ((other - truth) / scale).square().sum().cpu()
    assert (ours.sqrt() <= 1.25 * library.sqrt()).all()


def require_as_eager(models, x: Tensor) -> None:
    new, eager = models
    with torch.no_grad():
        for place, (ours, theirs) in enumerate(zip(new(x), eager(x), strict=True)):
            require_close(f"result {place}", ours, theirs)


def test_hard_rows(models, module: ModuleType) -> None:
    require_as_eager(models, hard_rows(module.length, torch.float32))


def test_layouts(models, module: ModuleType) -> None:
    x = drawn(5, module.length)
    for each in (shifted(x), x.repeat(1, 2)[:, ::2], x[:0]):
        require_as_eager(models, each)


def test_the_same_bits(models, module: ModuleType) -> None:
    """Into other memory, on another stream beside this one, and when replayed."""
    new, _ = models
    x = drawn(33, module.length)
    with torch.no_grad():
        first = new(x)
        for _ in range(20):
            poison(first)
            assert all(map(same_bits, new(x), first))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            there = [new(x) for _ in range(3)]
        here = [new(x) for _ in range(3)]
        torch.cuda.synchronize()
        assert all(all(map(same_bits, each, first)) for each in (*there, *here))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = new(x)
        for _ in range(3):
            for each in replayed:
                each.fill_(77)
            graph.replay()
            torch.cuda.synchronize()
            assert all(map(same_bits, replayed, first))


def test_it_is_one_kernel_of_all_multiprocessors(models, module: ModuleType) -> None:
    new, _ = models
    x = drawn(9, module.length)
    with torch.no_grad(), torch.profiler.profile() as profile:
        new(x)
        torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type.name == "CUDA"]
    assert sum("device_kernel" in name for name in names) == 1


def test_more_than_two_billion_elements(models, module: ModuleType) -> None:
    if module.length < 2**21:
        pytest.skip("the longer rows show it")
    new, eager = models
    x = drawn(1030, module.length)
    with torch.no_grad():
        (ours, *rest) = new(x)
        del rest
        for row in (0, 1, 511, 1023, 1024, 1029):
            (theirs, *rest) = eager(x[row : row + 1])
            require_close(f"row {row}", ours[row : row + 1], theirs)
