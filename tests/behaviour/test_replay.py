"""Calls that are recorded and made anew from C++: for the same results as Python makes, and only
where nothing could tell the difference.
"""

from __future__ import annotations

import copy
import gc
import re
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import CountCalls, load_file
from tests.behaviour.replaying import Watch, by_python, compiled

from opweld.driver import compile_file
from opweld.options import Options

# Convolutions and a Linear of PyTorch's, kernels between them, intermediates that are written into,
# a list of tensors; results in containers, one of them not a tensor.
SOURCE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        y = torch.relu(self.norm(self.first(x))) * 0.5
        return torch.tanh(self.second(y) + x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(8) for _ in range(3)])
        self.head = nn.Linear(8, 5)

    def forward(self, x, scale):
        y = self.blocks(x * scale + x)
        pooled = y.mean((2, 3))
        left, right = torch.split(self.head(pooled), [2, 3], 1)
        others = (right.exp() + 1, y, "name")
        return {"left": torch.sigmoid(left) * 2, "right": others, "none": None}


def get_inputs():
    return [torch.randn(2, 8, 6, 6), torch.randn(2, 8, 6, 6)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def file(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("replay"), SOURCE, target="cpu", mode="both")


def inputs(seed: int, batch: int = 2) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(batch, 8, 6, 6), torch.randn(batch, 8, 6, 6)]


def model(file: ModuleType, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    new = file.ModelNew().eval()
    for norm in (each for each in new.modules() if isinstance(each, torch.nn.BatchNorm2d)):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    return new


def tensors_of(result: Any) -> list[torch.Tensor]:
    return [result["left"], *result["right"][:2]]


def kept_of(file: ModuleType, net: Any) -> dict[Any, Any]:
    """What is recorded of a model in eval mode."""
    kept: dict[Any, Any] = file.ModelNew._opweld.holds_eval.kept(net)
    return kept


def check_as_python(file: ModuleType, net: Any, result: Any, *args: torch.Tensor) -> None:
    wanted = by_python(file, net, *args)
    assert [*result] == [*wanted] and result["right"][2] == "name" and result["none"] is None
    for one, other in zip(tensors_of(result), tensors_of(wanted), strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()


def test_the_third_call_is_replayed_with_equal_bits(file: ModuleType) -> None:
    net = model(file)
    with torch.no_grad(), Watch(file) as ways:
        results = [(net(*inputs(seed)), seed) for seed in range(4)]
    assert ways == ["python", "recorded", "replayed", "replayed"]
    with torch.no_grad():
        for result, seed in results:
            check_as_python(file, net, result, *inputs(seed))


def test_each_size_and_layout_is_recorded_for_itself(file: ModuleType) -> None:
    net = model(file)
    with torch.no_grad(), Watch(file) as ways:
        for batch in (2, 3, 1, 2, 3, 1, 2, 3, 1):
            net(*inputs(0, batch))
        last = [x.to(memory_format=torch.channels_last) for x in inputs(5)]
        found = [net(*last) for _ in range(3)]
    once = ["python", "recorded", "replayed"]
    assert ways == [*(way for way in once for _ in range(3)), *once]
    with torch.no_grad():
        check_as_python(file, net, found[-1], *last)


def test_results_are_memory_of_their_own(file: ModuleType) -> None:
    net, given = model(file), inputs(0)
    before = [x.clone() for x in given]
    with torch.no_grad():
        results = [tensors_of(net(*given)) for _ in range(30)]
    storages = {x.untyped_storage().data_ptr() for each in results for x in each}
    assert len(storages) == 3 * 30
    assert all(torch.equal(*pair) for pair in zip(given, before, strict=True))


def _in_place(net: Any) -> None:
    net.blocks[1].first.weight.mul_(2)


def _by_data(net: Any) -> None:
    net.blocks[1].first.weight.data = torch.randn(8, 8, 3, 3)


def _assigned(net: Any) -> None:
    net.blocks[1].first.weight = torch.nn.Parameter(torch.randn(8, 8, 3, 3))


def _swapped(net: Any) -> None:
    net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()}, assign=True)


def _buffer(net: Any) -> None:
    net.blocks[2].norm.running_mean = torch.randn(8)


def _eps(net: Any) -> None:
    net.blocks[0].norm.eps = 0.5


@pytest.mark.parametrize("change", [_in_place, _by_data, _assigned, _swapped, _buffer, _eps])
def test_changes_of_the_model_are_seen(file: ModuleType, change: Any) -> None:
    net, given = model(file), inputs(0)
    with torch.no_grad():
        before = [net(*given) for _ in range(3)][-1]
        change(net)
        for _ in range(3):
            result = net(*given)
            check_as_python(file, net, result, *given)
            assert not torch.equal(result["left"], before["left"])


def test_hooks_run(file: ModuleType) -> None:
    net, given, seen = model(file), inputs(0), []
    with torch.no_grad():
        for _ in range(3):
            net(*given)
        handle = net.blocks[1].second.register_forward_hook(lambda *_: seen.append(1))
        net(*given)
        handle.remove()
        net(*given)
    assert seen == [1]


def test_gradients_are_python_s(file: ModuleType) -> None:
    net, given = model(file), inputs(0)
    with torch.no_grad():
        for _ in range(3):
            net(*given)
    with Watch(file) as ways:
        net(*given)["left"].sum().backward()
    assert "replayed" not in ways and net.head.weight.grad is not None


def test_who_watches_operators_sees_all(file: ModuleType) -> None:
    # a trace has weights as constants, which ask for no gradient
    net, given = model(file).requires_grad_(False), inputs(0)
    with torch.no_grad():
        for _ in range(3):
            net(*given)
        with CountCalls() as count:
            net(*given)
        assert len(count.ours) >= 7 and any("convolution" in each for each in count.others)
        with torch.profiler.profile() as profile:
            net(*given)
        names = {event.name for event in profile.events()}
        assert "aten::convolution" in names
        assert any(re.match(r"opweld_\w+::k\d", each) for each in names)
        traced = torch.jit.trace(lambda *x: net(*x)["left"], tuple(given), check_trace=False)
        assert "::opweld_replay(" not in str(traced.inlined_graph)


def test_under_functorch_autocast_and_inference_mode(file: ModuleType) -> None:
    net, given = model(file), inputs(0)
    with torch.no_grad(), Watch(file) as ways:
        for _ in range(3):
            net(*given)
        many = torch.func.vmap(lambda x, y: net(x, y)["left"])(*(x[None] for x in given))
        assert torch.allclose(many[0], net(*given)["left"], atol=1e-6)
        with torch.autocast("cpu", torch.bfloat16):
            net(*given)
        assert ways.count("replayed") == 2
    with torch.inference_mode(), Watch(file) as ways:
        results = [net(*given) for _ in range(4)]
        assert ways == ["python", "recorded", "replayed", "replayed"]
        assert all(x.is_inference() for x in tensors_of(results[-1]))
    with torch.no_grad(), Watch(file) as ways:
        assert not net(*given)["left"].is_inference() and ways == ["replayed"]


def test_one_tensor_passed_twice_is_not_recorded(file: ModuleType) -> None:
    """Which of the two an operator read could not be told."""
    net, (x, y) = model(file), inputs(0)
    with torch.no_grad(), Watch(file) as ways:
        for _ in range(4):
            net(x, x)
        result = net(x, y)
        check_as_python(file, net, result, x, y)
    assert "replayed" not in ways


def test_a_buffer_without_strides_does_no_harm(file: ModuleType) -> None:
    """A sparse one has no memory of its own that a call could be told to read."""
    net, given = model(file), inputs(0)
    for name in ("table", "other"):
        net.register_buffer(name, torch.eye(3).to_sparse())
    with torch.no_grad(), Watch(file) as ways:
        for _ in range(4):
            check_as_python(file, net, net(*given), *given)
    assert "replayed" in ways


def test_a_copy_has_its_own(file: ModuleType) -> None:
    net, given = model(file), inputs(0)
    with torch.no_grad():
        for _ in range(3):
            net(*given)
        other = copy.deepcopy(net)
        other.head.weight.zero_()
        for _ in range(4):
            result = other(*given)
            check_as_python(file, other, result, *given)


def test_training_mode_keeps_its_statistics(file: ModuleType) -> None:
    net, given = model(file), inputs(0)
    with torch.no_grad():
        for _ in range(3):
            net(*given)
        net.train()
        before = net.blocks[0].norm.num_batches_tracked.item()
        for _ in range(4):
            net(*given)
    assert net.blocks[0].norm.num_batches_tracked.item() == before + 4


def test_a_model_that_is_gone_frees_what_was_recorded(file: ModuleType) -> None:
    net, given = model(file), inputs(0)
    with torch.no_grad():
        for _ in range(3):
            net(*given)
    op = file.ModelNew._opweld.op("opweld_replay")
    kept = kept_of(file, net)
    (run,) = (each for each in kept.values() if callable(each))
    number = next(
        cell.cell_contents
        for name, cell in zip(run.__code__.co_freevars, run.__closure__, strict=True)
        if name == "number"
    )
    assert len(op(given, number)) == 3
    del net, kept, run
    gc.collect()
    with pytest.raises(IndexError):
        op(given, number)


def test_threads(file: ModuleType) -> None:
    net = model(file)
    given = [inputs(seed) for seed in range(4)]
    with torch.no_grad():
        wanted = [by_python(file, net, *each) for each in given]
    failed = []

    def run(each: int) -> None:
        with torch.no_grad():
            for _ in range(50):
                result = net(*given[each])
                pairs = zip(tensors_of(result), tensors_of(wanted[each]), strict=True)
                failed.extend(1 for pair in pairs if not torch.equal(*pair))

    threads = [threading.Thread(target=run, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_replay_that_fails_falls_back_to_python(file: ModuleType) -> None:
    net, given = model(file), inputs(0)
    with torch.no_grad():
        for _ in range(3):
            net(*given)
        kept = kept_of(file, net)
        (key,) = (key for key, each in kept.items() if callable(each))

        def fails(*_: Any) -> None:
            raise RuntimeError("no memory")

        kept[key] = fails
        with Watch(file) as ways:
            check_as_python(file, net, net(*given), *given)
            net(*given)
    assert ways == ["python", "python"]


def test_under_torch_compile(file: ModuleType) -> None:
    net, given = model(file), inputs(0)
    with torch.no_grad():
        for _ in range(3):
            wanted = net(*given)
        compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
        result = compiled(*given)
    for one, other in zip(tensors_of(result), tensors_of(wanted), strict=True):
        torch.testing.assert_close(one, other)


def test_many_sizes_are_not_all_kept(file: ModuleType) -> None:
    net = model(file)
    with torch.no_grad(), Watch(file) as ways:
        for batch in range(1, 41):
            for _ in range(2):
                net(*inputs(0, batch))
        net(*inputs(0, 3))
        net(*inputs(0, 40))
    assert len(kept_of(file, net)) == 32
    assert ways.count("recorded") == 32 and ways[-2:] == ["replayed", "python"]


def test_calls_over_several_lines_are_indented_by_four(file: ModuleType) -> None:
    text = Path(str(file.__file__)).read_text("utf-8")
    (new,) = re.findall(r"^class ModelNew.*?(?=^# --- )", text, re.MULTILINE | re.DOTALL)
    lines = new.splitlines()
    opened = [k for k, line in enumerate(lines) if line.endswith("(")]
    assert any("_kernels.replay(" in lines[k] for k in opened)
    for k in opened:
        before, behind = (len(line) - len(line.lstrip()) for line in lines[k : k + 2])
        assert behind == before + 4, lines[k + 1]


OBJECTS = """
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Pair:
    first: torch.Tensor
    second: torch.Tensor


class Cache:
    def __init__(self, keys):
        self.keys, self.device = keys, keys.device


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        states = []
        for layer in self.layers:
            x = torch.tanh(layer(x)) * 2.0
            states.append(x)
        return RETURNED


def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("returned", "tensors"),
    [
        ("x, Pair(states[0], states[1])", lambda out: (out[0], out[1].first, out[1].second)),
        ("Cache(states)", lambda out: tuple(out.keys)),
        ("{'x': x, 'cache': Cache(states[1])}", lambda out: (out["x"], out["cache"].keys)),
        ("x, 3, None, states[0].shape[0], 'name'", lambda out: out[:1]),
    ],
    ids=["dataclass", "object of a list", "object in a dict", "plain"],
)
def test_objects_hold_the_results_of_their_own_call(
    build_folder: Path, tmp_path: Path, returned: str, tensors: Any
) -> None:
    """Of what the first call left in an object nothing is given again, recorded as it is."""
    path = tmp_path / "objects.py"
    source = OBJECTS.replace("RETURNED", returned)
    path.write_text(source.replace("keys.device", "None") if "states)" in returned else source)
    text = compile_file(path, Options(target="cpu", mode="eval", check=False)).text
    made = load_file(tmp_path / "objects_new.py", text)
    new = made.ModelNew().eval()
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(4, 16)
            found, wanted = new(x), made.Model.forward(new, x)
            torch.testing.assert_close(tensors(found), tensors(wanted), rtol=1e-5, atol=1e-6)
            assert type(found) is type(wanted)
        holds = made.ModelNew._opweld.holds
        assert any(map(callable, holds.kept(new).values()))
