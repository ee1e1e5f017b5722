"""Steps of training that are recorded and made anew from C++: gradients are those of Python, and
steps are replayed only where nothing could tell the difference.
"""

from __future__ import annotations

import copy
import gc
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.behaviour.emitted import load_file
from tests.behaviour.replaying import Watch, by_python
from torch import Tensor, nn
from torch.utils import checkpoint
from torch.utils.cpp_extension import include_paths

from opweld.driver import compile_file
from opweld.emission.support import ABI_FLAG
from opweld.model_file import import_file
from opweld.options import Options

# Residuals, whose gradients are added; attention and a table of PyTorch's, of which a part is read;
# a weight with two uses, one without any, a result without gradients.
SOURCE = """
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, width // 2).unbind(2)
        y = F.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)))
        x = x + y.transpose(1, 2).reshape(batch, length, width)
        return x + self.down(F.gelu(self.up(x)) * 0.5)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(11, 16), nn.Embedding(9, 16)
        self.blocks = nn.ModuleList(Block(16) for _ in range(3))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, tokens, x):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        y = self.table(tokens) + self.places(places) + x
        for block in self.blocks:
            y = block(y)
        return {"scores": torch.tanh(F.linear(y, self.table.weight)) * 2, "of": (y.detach() > 0)}


def get_inputs():
    return [torch.randint(11, (2, 5)), torch.randn(2, 5, 16)]


def get_init_inputs():
    return []
"""


# Attention has no second derivatives there.
TWICE = SOURCE.replace(
    "F.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)))",
    "(q * torch.sigmoid(k) + v).transpose(1, 2)",
)


def compiled(folder: Path, source: str) -> ModuleType:
    path = folder / "stepping.py"
    path.write_text(source, "utf-8")
    options = Options(target="cpu", mode="training", training=True, check=False)
    return load_file(folder / "stepping_new.py", compile_file(path, options).text)


@pytest.fixture(scope="module")
def file(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("replay"), SOURCE)


@pytest.fixture(scope="module")
def twice(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("replay"), TWICE)


def inputs(seed: int = 0) -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randint(11, (2, 5)), torch.randn(2, 5, 16)]


def model(file: ModuleType) -> Any:
    torch.manual_seed(0)
    return file.ModelNew()


def ready(file: ModuleType) -> Any:
    """A model of which a step has been recorded."""
    net = model(file)
    with Watch(file) as ways:
        for _ in range(3):
            net(*inputs())
    assert ways == ["python", "recorded", "replayed"]
    return net


def weighted(scores: Tensor) -> Tensor:
    return (scores * torch.cos(torch.arange(scores.numel()).reshape(scores.shape).float())).sum()


def gradients(net: Any, given: list[Tensor], loss: Callable[[Tensor], Tensor] = weighted) -> Any:
    """By the names of weights, "x" for the input's, where it asks for one."""
    net.zero_grad(set_to_none=True)
    given = [x.detach().clone().requires_grad_(x.requires_grad) for x in given]
    loss(net(*given)["scores"]).backward()
    return {"x": given[1].grad, **{name: p.grad for name, p in net.named_parameters()}}


def by_python_s(file: ModuleType, *args: Any, **kwargs: Any) -> Any:
    held = file.ModelNew._opweld
    replay, held.replay = held.replay, lambda *_: None
    try:
        return gradients(*args, **kwargs)
    finally:
        held.replay = replay


def check_equal(found: Any, wanted: Any) -> None:
    assert [*found] == [*wanted]
    for name, grad in found.items():
        if wanted[name] is None:
            assert grad is None, name
        else:
            assert torch.equal(grad, wanted[name]) and grad.stride() == wanted[name].stride(), name


@pytest.mark.parametrize("asks", [False, True])
def test_the_third_step_is_replayed_with_equal_bits(file: ModuleType, asks: bool) -> None:
    net = model(file)
    for seed in range(5):
        given = inputs(seed)
        given[1].requires_grad_(asks)
        with Watch(file) as ways:
            found = gradients(net, given)
        assert ways == [["python", "recorded", "replayed"][min(seed, 2)]]
        check_equal(found, by_python_s(file, net, given))
        assert found["unused"] is None and (found["x"] is not None) is asks


def test_one_node_has_the_gradients_of_all(file: ModuleType) -> None:
    scores = ready(file)(*inputs())["scores"]
    leaves = [each for each, _ in scores.grad_fn.next_functions if each is not None]
    assert all(type(each).__name__ == "AccumulateGrad" for each in leaves)
    assert len(leaves) == len([*model(file).parameters()])


def test_results_are_those_of_python(file: ModuleType) -> None:
    net = ready(file)
    found, wanted = net(*inputs(7)), by_python(file, net, *inputs(7))
    assert [*found] == [*wanted] and all(torch.equal(found[key], wanted[key]) for key in wanted)
    assert found["scores"].requires_grad and not found["of"].requires_grad


@pytest.mark.parametrize(
    "loss",
    [
        torch.sum,  # whose gradient is one number for all
        lambda scores: weighted(scores.transpose(0, 2)),
        lambda scores: weighted(scores[1, 2:4]),
        lambda scores: scores.square().mean() + weighted(scores),
    ],
)
def test_gradients_of_any_layout(file: ModuleType, loss: Callable[[Tensor], Tensor]) -> None:
    net = ready(file)
    with Watch(file) as ways:
        found = gradients(net, inputs(), loss)
    assert ways == ["replayed"]
    for name, wanted in by_python_s(file, net, inputs(), loss).items():
        torch.testing.assert_close(found[name], wanted)


def test_frozen_weights_have_none(file: ModuleType) -> None:
    net = ready(file)
    net.blocks[1].requires_grad_(False)
    for place in range(3):
        with Watch(file) as ways:
            found = gradients(net, inputs())
        assert ways == [["python", "recorded", "replayed"][place]]
        check_equal(found, by_python_s(file, net, inputs()))
        assert found["blocks.1.up.weight"] is None and found["blocks.0.up.weight"] is not None


def test_optimizer_steps_are_python_s(file: ModuleType) -> None:
    nets = [ready(file), copy.deepcopy(model(file))]
    optimizers = [torch.optim.AdamW(net.parameters(), lr=0.05) for net in nets]
    for seed in range(12):
        for by, net, optimizer in zip((gradients, by_python_s), nets, optimizers, strict=True):
            by(*([file] if by is by_python_s else []), net, inputs(seed))
            optimizer.step()
    for found, wanted in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(found, wanted)


def test_gradients_are_accumulated_over_forwards(file: ModuleType) -> None:
    net, apart = ready(file), []
    for seed in (1, 2):
        apart.append(gradients(net, inputs(seed)))
    net.zero_grad(set_to_none=True)
    results = [net(*inputs(seed))["scores"] for seed in (1, 2)]  # two graphs at once
    for scores in reversed(results):
        weighted(scores).backward()
    for name, weight in net.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(weight.grad, apart[0][name] + apart[1][name])


def test_a_graph_that_is_retained_can_be_used_again(file: ModuleType) -> None:
    net = ready(file)
    loss, weights = weighted(net(*inputs())["scores"]), [net.table.weight, net.blocks[2].up.weight]
    first = torch.autograd.grad(loss, weights, retain_graph=True)
    second = torch.autograd.grad(loss, weights)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, weights)


def test_second_derivatives_are_python_s(twice: ModuleType) -> None:
    def second() -> tuple[Tensor, ...]:
        (first,) = torch.autograd.grad(
            weighted(net(*given)["scores"]), [given[1]], create_graph=True
        )
        return torch.autograd.grad(first.square().sum(), [given[1], net.table.weight])

    net, given = model(twice), inputs()
    given[1].requires_grad_()
    with Watch(twice) as ways:
        for _ in range(3):
            net(*given)
        found = second()
    assert ways[-2:] == ["replayed", "python"]  # the last is the backward's
    held = twice.ModelNew._opweld
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "replay", lambda *_: None)
        wanted = second()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_second_derivatives_of_what_has_changed_are_an_error(twice: ModuleType) -> None:
    net, given = ready(twice), inputs()
    scores = net(*given)["scores"]
    with torch.no_grad():
        net.blocks[0].down.bias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(weighted(scores), [net.table.weight], create_graph=True)


@pytest.mark.parametrize(("of", "fails"), [("weight", True), ("bias", False)])
def test_what_a_backward_reads_must_not_change(file: ModuleType, of: str, fails: bool) -> None:
    net = ready(file)
    wanted = gradients(net, inputs())
    net.zero_grad(set_to_none=True)
    scores = net(*inputs())["scores"]
    with torch.no_grad():
        getattr(net.blocks[1].up, of).add_(1)
    if fails:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            weighted(scores).backward()
    else:
        weighted(scores).backward()
        assert torch.equal(net.blocks[0].up.weight.grad, wanted["blocks.0.up.weight"])


def test_many_gradients_at_once(twice: ModuleType) -> None:
    net = ready(twice)
    scores = net(*inputs())["scores"]
    weight = [net.blocks[0].up.weight]
    given = torch.randn(3, *scores.shape)
    (found,) = torch.autograd.grad(scores, weight, given, is_grads_batched=True)
    for place, each in enumerate(given):
        (wanted,) = torch.autograd.grad(net(*inputs())["scores"], weight, each)
        torch.testing.assert_close(found[place], wanted)


def test_under_autocast_gradients_stay_exact(file: ModuleType) -> None:
    net = ready(file)
    wanted = gradients(net, inputs())
    net.zero_grad(set_to_none=True)
    loss = weighted(net(*inputs())["scores"])
    with torch.autocast("cpu", torch.bfloat16):
        loss.backward()
    assert torch.equal(net.blocks[0].qkv.weight.grad, wanted["blocks.0.qkv.weight"])


def test_hooks_of_weights_run_once_a_step(file: ModuleType) -> None:
    net, seen = ready(file), []
    net.table.weight.register_hook(lambda grad: seen.append("gradient") or grad * 2)
    net.table.weight.register_post_accumulate_grad_hook(lambda _: seen.append("accumulated"))
    with Watch(file) as ways:
        found = gradients(net, inputs())
    assert ways == ["replayed"] and seen == ["gradient", "accumulated"]
    del seen[:]
    net.table.weight._backward_hooks.clear()
    torch.testing.assert_close(found["table.weight"], 2 * gradients(net, inputs())["table.weight"])


def test_what_is_hooked_is_not_recorded(file: ModuleType) -> None:
    """A hook would run once more for it, and what it does would be recorded."""
    net, seen = model(file), []
    net.table.weight.register_hook(lambda _: seen.append(1))
    for _ in range(4):
        with Watch(file) as ways:
            gradients(net, inputs())
        assert "replayed" not in ways
    assert len(seen) == 4


def _hooked(call: Callable[[], Any]) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        return call()


def _in_checkpoint(call: Callable[[], Any]) -> Any:
    return checkpoint.checkpoint(call, use_reentrant=False)


def _anomalies_seen(call: Callable[[], Any]) -> Any:
    with torch.autograd.set_detect_anomaly(True):
        return call()


def _in_ddp(call: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.parallel.DistributedDataParallel, "_active_ddp_module", object())
        return call()


@pytest.mark.parametrize("way", [_hooked, _in_checkpoint, _anomalies_seen, _in_ddp])
def test_who_waits_for_single_weights_sees_python(file: ModuleType, way: Any) -> None:
    net = ready(file)
    wanted = gradients(net, inputs())
    net.zero_grad(set_to_none=True)
    with Watch(file) as ways:
        scores = way(lambda: net(*inputs())["scores"])
        weighted(scores).backward()
    assert set(ways) == {"python"}
    torch.testing.assert_close(net.blocks[0].up.weight.grad, wanted["blocks.0.up.weight"])


def test_functional_gradients_are_python_s(file: ModuleType) -> None:
    net = ready(file)
    wanted = gradients(net, inputs())["blocks.0.up.weight"]
    weights = {"blocks.0.up.weight": net.blocks[0].up.weight.detach()}

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return weighted(torch.func.functional_call(net, weights, tuple(inputs()))["scores"])

    with Watch(file) as ways:
        found = torch.func.grad(loss)(weights)["blocks.0.up.weight"]
    assert "replayed" not in ways
    torch.testing.assert_close(found, wanted)


def test_without_gradients_calls_are_recorded_for_themselves(file: ModuleType) -> None:
    net = ready(file)
    with torch.no_grad(), Watch(file) as ways:
        results = [net(*inputs())["scores"] for _ in range(3)]
    assert ways == ["python", "recorded", "replayed"]
    assert not results[-1].requires_grad and torch.equal(results[-1], net(*inputs())["scores"])
    frozen = model(file).requires_grad_(False)
    with Watch(file) as ways:
        results = [frozen(*inputs())["scores"] for _ in range(3)]
    assert ways[-1] == "replayed" and not results[-1].requires_grad


def test_what_a_forward_left_goes_with_its_graph(file: ModuleType) -> None:
    net = ready(file)
    backward, done = file.ModelNew._opweld.op("opweld_replay_backward"), []
    for use in (True, False):
        scores = net(*inputs())["scores"]
        node = scores.grad_fn
        program, left = node.its.second, node.left
        given = [torch.ones_like(scores), *node.saved_tensors[: len(node.its.read)]]
        assert len(backward(given, program, left, True)) == sum(node.its.found)
        if use:
            weighted(scores).backward()
        else:
            del scores, node
            gc.collect()
        with pytest.raises(IndexError):
            backward(given, program, left, True)
        done.append(use)
    assert done == [True, False]


def test_few_elements_are_replayed_as_well(file: ModuleType, tmp_path: Path) -> None:
    """The original runs until then, as calls of single kernels are host-bound."""
    path = tmp_path / "few.py"
    path.write_text(Path(str(file.__file__)).read_text("utf-8"), "utf-8")
    few = import_file(path, "few")
    assert few.ModelNew._opweld.host_bound(net := model(few), *inputs())
    nodes = [type(net(*inputs())["scores"].grad_fn).__name__ for _ in range(3)]
    assert nodes[0] == "MulBackward0" and nodes[2] == "StepBackward"
    assert few.ModelNew._opweld.host_bound(net, *inputs()), "as it was"


def test_a_forward_that_fails_falls_back_to_python(file: ModuleType) -> None:
    net = ready(file)
    kept = file.ModelNew._opweld.holds.kept(net)
    (key,) = (key for key, each in kept.items() if callable(each))

    def fails(*_: Any) -> None:
        raise RuntimeError("no memory")

    wanted = gradients(net, inputs())
    kept[key] = fails
    with Watch(file) as ways:
        check_equal(gradients(net, inputs()), wanted)
    assert ways == ["python"]


def test_none_for_a_tensor_is_one_that_is_undefined(file: ModuleType) -> None:
    """As attention's backward has it on a GPU."""
    library = torch.library.Library("opweld_test_undefined", "DEF")
    library.define("seen(Tensor x, Tensor y) -> Tensor")
    library.impl("seen", lambda x, y: y + 1 if x is None else y, "CompositeExplicitAutograd")
    op, tensor, undefined = file.ModelNew._opweld.op, 0, 5
    code = [0, 0, 1, 2, undefined, tensor, 0, 0, 1]  # one call of it, whose result is returned
    number = op("opweld_prepare")([], code, "opweld_test_undefined::seen  ", 1, 1)
    (found,) = op("opweld_replay")([torch.zeros(2)], number)
    op("opweld_forget")(number)
    assert torch.equal(found, torch.ones(2))


TABLED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.LayerNorm(64) for _ in range(3))

    def forward(self, x):
        y = torch.tanh(self.first(x))
        z = self.second(y.transpose(0, 1)).transpose(0, 1)
        return torch.softmax(self.third(y + z.cumsum(0)), -1) + y


def get_inputs():
    return [torch.randn(32, 8, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_host_code_of_a_gpu_compiles_without_products(tmp_path: Path) -> None:
    """It has less of what the others use: these kernels are all called by one C signature."""
    path = tmp_path / "tabled.py"
    path.write_text(TABLED, "utf-8")
    options = Options(target="sm_90a", mode="training", training=True, check=False)
    text = compile_file(path, options).text
    parts = [re.search(rf'^_{name} = r"""(.*?)"""', text, re.M | re.S) for name in ("HOST", "MAIN")]
    source = "".join(part[1] for part in parts if part)
    assert "host::replay_backward" in source and "contraction" not in source
    (tmp_path / "main.cpp").write_text(f"#define TORCH_EXTENSION_NAME x\n{source}", "utf-8")
    flags = ["-std=c++20", "-fsyntax-only", "-DUSE_CUDA", ABI_FLAG]
    include = [f"-I{each}" for each in include_paths()]
    done = subprocess.run(
        ["g++", *flags, *include, "main.cpp"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


TWO = SOURCE.replace('"of": (y.detach() > 0)', '"of": y * 2')
INPUT = SOURCE.replace('"of": (y.detach() > 0)', '"of": x')
SAME = SOURCE.replace("return {", "z = torch.tanh(y)\n        return {").replace(
    'torch.tanh(F.linear(y, self.table.weight)) * 2, "of": (y.detach() > 0)',
    'z, "of": z.detach()',
)


@pytest.mark.parametrize("source", [TWO, INPUT, SAME], ids=["two", "input", "same"])
def test_results_that_one_node_cannot_have_are_python_s(
    source: str, build_folder: Path, tmp_path: Path
) -> None:
    """Of two with gradients one may have none; others are somebody's memory."""
    file = compiled(tmp_path, source)
    net = model(file)
    for _ in range(4):
        with Watch(file) as ways:
            found = gradients(net, inputs())
        assert "replayed" not in ways
        check_equal(found, by_python_s(file, net, inputs()))
