"""The models that must be fused, on the device: values, layouts, streams, graphs, autocast.

python3 -m pytest -m gpu tests/gpu/test_models.py
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import EVERY_STATE, kernels_in
from tests.gpu.building import Left, made_side_by_side
from tests.models.cases import BATCH, CASES, Case
from tests.models.checks import arguments, check_model
from tests.models.comparing import assert_close, copied, tensors
from tests.models.emitted import Emitted, emit_case, imported, model_of
from torch.utils import _pytree as pytree

pytestmark = pytest.mark.gpu

BY_NAME = {case.name: case for case in CASES}
CUDA = torch.device("cuda")
# A run with the generator's state taken at capture would draw other numbers than one without.
REPLAYED = tuple(case for case in CASES if not case.draws)
COMPILED = ("Perceptron", "Views", "Integers", "Twice", "InPlace", "Attention")


def exact_convolutions() -> AbstractContextManager[None]:
    """No TF32: a convolution of one layout would differ from that of another by its precision."""
    return torch.backends.cudnn.flags(enabled=True, allow_tf32=False, deterministic=True)


def build(name: str, directory: Path) -> bytes:
    """Builds the kernels of one model where the others find them; runs in a process of its own,
    which has the flags of this one: kernels that were made for TF32 leave calls without it to the
    original.
    """
    with exact_convolutions():
        return pickle.dumps(emit_case(BY_NAME[name], directory, "cuda", **EVERY_STATE).compiled)


@pytest.fixture(scope="module")
def building(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Left]:
    """The kernels of all models that tests were selected of, built side by side: most of a build
    is waiting for one compiler.
    """
    names = names_of(request.session.items, request.path)
    jobs = {name: partial(build, name) for name in names}
    with made_side_by_side(repr(names), jobs, tmp_path_factory) as left:
        yield left


def names_of(items: Iterable[pytest.Item], path: Path) -> list[str]:
    """The models of the tests of a file among `items`."""
    found = [item for item in items if isinstance(item, pytest.Function) and item.path == path]
    return list(dict.fromkeys(item.callspec.params["case"].name for item in found))


@pytest.fixture(scope="module")
def cache() -> dict[str, Emitted]:
    return {}


@pytest.fixture
def emitted(
    request: pytest.FixtureRequest,
    building: Left,
    cache: dict[str, Emitted],
    tmp_path_factory: pytest.TempPathFactory,
) -> Emitted:
    case: Case = request.getfixturevalue("case")
    if case.name not in cache:
        account = pickle.loads(building(case.name))
        folder = tmp_path_factory.mktemp("emitted")
        cache[case.name] = imported(model_of(case, "cuda"), account, folder, "cuda")
    return cache[case.name]


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    with exact_convolutions():
        yield


def parameters(cases: tuple[Case, ...]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@parameters(CASES)
def test_model(case: Case, emitted: Emitted) -> None:
    check_model(case, emitted)


@parameters(CASES)
def test_on_a_stream_whose_producer_still_runs(case: Case, emitted: Emitted) -> None:
    args, kwargs = arguments(case, BATCH, 8, CUDA)
    stream = torch.cuda.Stream()
    with torch.no_grad():
        torch.manual_seed(9)
        expected = emitted.original(*copied(args), **copied(kwargs))
        late = pytree.tree_map_only(torch.Tensor, torch.zeros_like, (args, kwargs))
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            for there, here in zip(tensors(late), tensors((args, kwargs)), strict=True):
                there.copy_(here)
            torch.manual_seed(9)
            ours = emitted.new(*late[0], **late[1])
        torch.cuda.current_stream().wait_stream(stream)
        assert_close(ours, expected, case.coarse)


@parameters(REPLAYED)
def test_graph_replays_after_inputs_and_weights_changed(case: Case, emitted: Emitted) -> None:
    static = arguments(case, BATCH, 10, CUDA)
    fresh = arguments(case, BATCH, 11, CUDA)
    weights = {name: value.clone() for name, value in emitted.new.state_dict().items()}
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                emitted.new(*static[0], **static[1])
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = emitted.new(*static[0], **static[1])
        for there, here in zip(tensors(static), tensors(fresh), strict=True):
            there.copy_(here)
        for module in (emitted.new, emitted.original):
            for parameter in module.parameters():
                parameter.mul_(1.25)
        graph.replay()
        expected = emitted.original(*copied(fresh[0]), **copied(fresh[1]))
        torch.cuda.synchronize()
        assert_close(results, expected, case.coarse)
        for module in (emitted.new, emitted.original):
            module.load_state_dict(weights)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@parameters(CASES)
def test_autocast(case: Case, dtype: torch.dtype, emitted: Emitted) -> None:
    """The types that the original gives, and values as near to it as 16 bits are."""
    args, kwargs = arguments(case, BATCH, 12, CUDA)
    with torch.no_grad(), torch.autocast("cuda", dtype=dtype):
        found = []
        for module in (emitted.new, emitted.original):
            torch.manual_seed(13)
            found.append(tensors(module(*copied(args), **copied(kwargs))))
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
    assert_near(*found)


def assert_near(new: list[torch.Tensor], old: list[torch.Tensor]) -> None:
    """Within the rounding of a few operations in bfloat16, relative to the largest element."""
    for ours, theirs in zip(new, old, strict=True):
        if not theirs.is_floating_point():
            continue
        finite = theirs.isfinite()
        assert torch.equal(ours.isfinite(), finite)
        scale = float(theirs[finite].abs().max()) if bool(finite.any()) else 0.0
        assert float((ours[finite] - theirs[finite]).abs().max()) <= 0.05 * scale + 1e-6


@pytest.mark.slow
@parameters(tuple(case for case in CASES if case.name in COMPILED))
def test_compiles_without_a_graph_break(case: Case, emitted: Emitted) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(emitted.new, fullgraph=True)
    for batch in (BATCH, *case.batches[-1:]):
        args, kwargs = arguments(case, batch, 14, CUDA)
        with torch.no_grad():
            ours = compiled(*copied(args), **copied(kwargs))
            assert_close(ours, emitted.original(*args, **kwargs), case.coarse)


@parameters(CASES)
def test_on_another_device(case: Case, emitted: Emitted) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    other = torch.device("cuda", 1)
    args, kwargs = arguments(case, BATCH, 15, other)
    emitted.new.to(other), emitted.original.to(other)
    try:
        with torch.no_grad():
            torch.manual_seed(16)
            ours = emitted.new(*args, **kwargs)
            torch.manual_seed(16)
            assert_close(ours, emitted.original(*args, **kwargs), case.coarse)
            assert all(t.device == other for t in tensors(ours))
            assert kernels_in(lambda: emitted.new(*args, **kwargs)) == emitted.num_kernels
        assert torch.cuda.current_device() == 0
    finally:
        emitted.new.to(CUDA), emitted.original.to(CUDA)
