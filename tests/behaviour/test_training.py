"""Files with kernels for gradients: on the CPU, and as CUDA under emulation."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.behaviour import products, row_blocks, test_prologues
from tests.behaviour.emitted import CountCalls, Pair, kernels_in, leaves, load_file
from tests.behaviour.products import pair_of_texts, text_of
from torch.utils.checkpoint import checkpoint

from opweld.driver import compile_file
from opweld.driver.kept_bytes import kept_by
from opweld.options import Options

SOURCE = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(24, 40)
        self.down = nn.Linear(40, 24, bias=False)
        self.side = nn.Linear(24, 16)
        self.norm = nn.LayerNorm(24)
        self.scale = nn.Parameter(torch.rand(24) + 0.5)

    def forward(self, x, y):
        raised = self.up(x)
        h, gate = F.gelu(raised), torch.sigmoid(raised)
        z = torch.tanh(self.down(h) + x)
        z = self.norm(z) * self.scale
        weights = torch.softmax(z * y, -1)
        logs = torch.log_softmax(y / 2.0, -1)
        loss = (F.silu(z) - weights).square().mean()
        side = F.leaky_relu(self.side(y), 0.2)
        return weights, logs[:, :5], loss, gate, side


def get_inputs():
    return [torch.randn(6, 24), torch.randn(6, 24)]


def get_init_inputs():
    return []
"""


def emitted_on(target: str, folder: Any, memory_budget: float = 1.0) -> Pair:
    if target == "cuda":
        text = text_of("training", SOURCE, training=True, memory_budget=memory_budget)
        return pair_of_texts("training", SOURCE, text, 0, folder)
    path = folder / "training.py"
    path.write_text(SOURCE, "utf-8")
    text = compile_file(path, Options(target="cpu", check=False, training=True)).text
    original = load_file(path, SOURCE)
    return Pair("training", SOURCE, text, 0, original, load_file(folder / "training_new.py", text))


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def pair(request, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return emitted_on(request.param, tmp_path_factory.mktemp("training"))


def total(results: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Of gradients that are unlike for each element of each result."""
    parts = [
        (each * torch.cos(torch.arange(each.numel()).reshape(each.shape) + place).to(each)).sum()
        for place, each in enumerate(results)
    ]
    return sum(parts[1:], parts[0])


def gradients(
    model: Any, inputs: list[torch.Tensor], wanted: Callable[[str], bool] = lambda name: True
) -> dict[str, torch.Tensor]:
    """Those of inputs and parameters whose names are wanted."""
    given = [x.detach().clone() for x in inputs]
    leaves = {**dict(zip("xy", given, strict=True)), **dict(model.named_parameters())}
    for name, leaf in leaves.items():
        leaf.requires_grad_(wanted(name))
    chosen = {name: leaf for name, leaf in leaves.items() if wanted(name)}
    found = torch.autograd.grad(total(model(*given)), [*chosen.values()], allow_unused=True)
    return dict(zip(chosen, found, strict=True))


def require_near(pair: Pair, inputs: list[torch.Tensor], wanted=lambda name: True) -> None:
    """As near float64 as eager is, but for a few roundings."""
    original, new = pair.models()
    exact = gradients(copy.deepcopy(original).double(), [x.double() for x in inputs], wanted)
    ours, eager = gradients(new, inputs, wanted), gradients(original, inputs, wanted)
    assert ours.keys() == exact.keys()
    for name, value in exact.items():
        error, usual = (
            (each[name].double() - value).abs().max() if value.numel() else torch.zeros(())
            for each in (ours, eager)
        )
        scale = value.abs().max() if value.numel() else torch.zeros(())
        assert error <= 2 * usual + 1e-6 * scale, name


@pytest.mark.parametrize("batch", [6, 1, 19, 0])
def test_gradients_are_near_float64(pair: Pair, batch: int) -> None:
    require_near(pair, pair.inputs(batch))


@pytest.mark.parametrize(
    "wanted",
    [
        lambda name: name in ("x", "y"),
        lambda name: name == "x",
        lambda name: name not in ("x", "y"),
        lambda name: name == "down.weight",
        lambda name: name == "up.bias",
        lambda name: name in ("y", "scale"),
    ],
    ids=["inputs", "one input", "weights", "one weight", "a bias", "some of both"],
)
def test_some_are_frozen(pair: Pair, wanted: Callable[[str], bool]) -> None:
    require_near(pair, pair.inputs(), wanted)


def test_the_backward_is_kernels(pair: Pair) -> None:
    _, new = pair.models()
    loss = total(new(*(x.requires_grad_() for x in pair.inputs())))
    with CountCalls() as count:
        loss.backward()
    names = [str(function) for function, _ in count.ours]
    assert len(names) >= 3 and all("_of_k" in name for name in names)
    formulas = {"gelu", "tanh", "silu", "native_layer_norm", "_softmax", "_log_softmax"}
    assert not [
        name for name in count.others if any(f"aten.{each}_backward" in name for each in formulas)
    ]


def test_what_nobody_asks_for_is_not_computed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of the gradients of a product the one that is not wanted takes no kernel."""
    cuda = emitted_on("cuda", tmp_path_factory.mktemp("some"))
    _, new = cuda.models()
    inputs = cuda.inputs()

    def num_products(wanted: Callable[[str], bool]) -> int:
        for name, parameter in new.named_parameters():
            parameter.requires_grad_(wanted(name))
        given = [
            x.clone().requires_grad_(wanted(name)) for x, name in zip(inputs, "xy", strict=True)
        ]
        loss = total(new(*given))
        with CountCalls() as count:
            loss.backward()
        return sum("matmul_of" in str(function) for function, _ in count.ours)

    assert num_products(lambda name: True) == 6
    assert num_products(lambda name: name == "x") == 2
    assert num_products(lambda name: name == "down.weight") == 1
    assert num_products(lambda name: name == "norm.weight") == 0


def test_several_backwards(pair: Pair) -> None:
    """Two forwards before them, one of them twice; gradients accumulate."""
    for model in (found := pair.models()):
        first, second = (model(*pair.inputs(seed=seed)) for seed in (1, 2))
        total(second).backward()
        total(first).backward(retain_graph=True)
        total(first).backward()
    original, new = found
    for mine, theirs in zip(new.parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)


def test_gradients_of_gradients(pair: Pair) -> None:
    found = []
    for model in pair.models():
        inputs = [x.requires_grad_() for x in pair.inputs()]
        firsts = torch.autograd.grad(total(model(*inputs)), inputs, create_graph=True)
        found.append(torch.autograd.grad(total(firsts), [*inputs, *model.parameters()]))
    for mine, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_one_result_alone_is_differentiated(pair: Pair) -> None:
    for place in range(4):
        found = []
        for model in pair.models():
            inputs = [x.requires_grad_() for x in pair.inputs()]
            model.zero_grad()
            model(*inputs)[place].sum().backward()
            found.append([*(x.grad for x in inputs), *(p.grad for p in model.parameters())])
        for mine, theirs in zip(found[1], found[0], strict=True):
            # Of the sum of a softmax the gradient is 0 but for roundings.
            if mine is None or theirs is None:
                assert not any(each.any() for each in (mine, theirs) if each is not None)
            else:
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_what_is_kept_is_little(pair: Pair) -> None:
    """The signs of a layer as bits, the statistics of a norm; by forwards that leave these."""
    lines = [line for line in pair.text.split("\n") if "_backward(_kernels" in line]
    kept = [
        name for line in lines for name in line.split(", ") if name.startswith(("gt_", "rsqrt"))
    ]
    products = [line for line in lines if "linear_leaky_relu" in line]
    assert any(name.startswith("rsqrt") for name in kept)
    assert all("gt_out" in line and "linear_out" not in line for line in products)
    assert bool(products) is ("__global__" in pair.text)


def test_the_plan_says_what_is_kept(tmp_path: Path) -> None:
    """As many bytes as autograd's hook sees of the module that was made."""
    path = tmp_path / "training.py"
    path.write_text(SOURCE, "utf-8")
    options = Options(target="cpu", check=False, training=True, counts_kept=True)
    compiled = compile_file(path, options)
    new = load_file(tmp_path / "training_new.py", compiled.text)
    torch.manual_seed(0)
    model, inputs = new.ModelNew(), new.get_inputs()
    own, eager, theirs = (
        float(number) * 1e6 for number in re.findall(r"([\d.e+-]+) MB by", compiled.stages["kept"])
    )
    staying = [*model.parameters(), *model.buffers(), *inputs]
    assert own == pytest.approx(kept_by(lambda: model(*inputs), staying), rel=1e-3)
    original = load_file(tmp_path / "original.py", SOURCE).Model()
    staying = [*original.parameters(), *inputs]
    assert eager == pytest.approx(kept_by(lambda: original(*inputs), staying), rel=1e-3)
    assert 0 < own < eager and 0 < theirs < eager


def test_without_memory_products_are_computed_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pair = emitted_on("cuda", tmp_path_factory.mktemp("again"), memory_budget=0.0)
    assert "_saving" not in pair.text
    lines = [line for line in pair.text.split("\n") if "_backward(_kernels" in line]
    assert lines and not any("linear_out" in line or "rsqrt_out" in line for line in lines)
    assert "_linear_gt_" in pair.text
    require_near(pair, pair.inputs(6))


def test_gradients_in_other_layouts(pair: Pair) -> None:
    found = []
    for model in pair.models():
        inputs = [x.requires_grad_() for x in pair.inputs()]
        weights, logs, loss, gate, side = model(*inputs)
        torch.manual_seed(3)
        grads = [torch.randn(24, 6).t(), torch.randn(1, 5).expand(6, 5), torch.tensor(2.0)]
        grads += [torch.randn(6, 1).expand(6, 40), torch.randn(16).expand(6, 16)]
        torch.autograd.backward((weights, logs, loss, gate, side), grads)
        found.append([*(x.grad for x in inputs), *(p.grad for p in model.parameters())])
    for mine, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_torch_func(pair: Pair) -> None:
    found = []
    for model in pair.models():
        named = {name: p.detach() for name, p in model.named_parameters()}

        def loss(parameters, x, y, model=model):
            return total(torch.func.functional_call(model, parameters, (x[None], y[None])))

        each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
        found.append(each(named, *pair.inputs()))
    for name, theirs in found[0].items():
        torch.testing.assert_close(found[1][name], theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda ps: torch.optim.AdamW(ps, lr=1e-2),
        lambda ps: torch.optim.AdamW(ps, lr=1e-2, fused=True),
        lambda ps: torch.optim.SGD(ps, lr=1e-3, momentum=0.9, foreach=True),
    ],
    ids=["AdamW", "fused AdamW", "SGD, foreach"],
)
def test_training_follows_eager(pair: Pair, optimizer: Callable[..., Any]) -> None:
    """Fifty steps: the losses stay as near those of float64 as eager's, but for chance."""
    original, new = pair.models()
    exact = copy.deepcopy(original).double()
    losses = {}
    for name, model in (("eager", original), ("ours", new), ("exact", exact)):
        steps = optimizer(model.parameters())
        losses[name] = []
        for step in range(50):
            inputs = [x.to(next(model.parameters()).dtype) for x in pair.inputs(seed=step)]
            loss = total(model(*inputs))
            steps.zero_grad()
            loss.backward()
            steps.step()
            losses[name].append(loss.item())
    exact_losses = torch.tensor(losses["exact"])
    ours, eager = (
        (torch.tensor(losses[name]) - exact_losses).abs().median() for name in ("ours", "eager")
    )
    assert ours <= 1.5 * eager + 1e-6


def test_checkpoints_and_autocast(pair: Pair) -> None:
    """What runs a forward again, or casts in it, has the gradients of eager."""
    for how in ("checkpoint", "autocast"):
        found = []
        for model in pair.models():
            inputs = [x.requires_grad_() for x in pair.inputs()]
            if how == "checkpoint":
                results = checkpoint(model, *inputs, use_reentrant=False)
            else:
                with torch.autocast("cpu", torch.bfloat16):
                    results = model(*inputs)
            total(tuple(each.float() for each in results)).backward()
            found.append([*(x.grad for x in inputs), *(p.grad for p in model.parameters())])
        limit = 1e-4 if how == "checkpoint" else 3e-2
        for mine, theirs in zip(found[1], found[0], strict=True):
            scale = float(theirs.abs().max())
            torch.testing.assert_close(mine, theirs, rtol=limit, atol=limit * scale)


SOURCES: dict[str, tuple[str, str]] = {
    **{f"products, {name}": (products.source_of(name), "none") for name in products.BODIES},
    "a prologue": (test_prologues.SOURCE, "mma"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_gradients_of_products(name: str, tmp_path) -> None:
    source, tensor_cores = SOURCES[name]
    text = text_of("kinds", source, tensor_cores, training=True)
    made = pair_of_texts("kinds", source, text, 0, tmp_path)
    # Its gradient goes through 16 bits, of which roundings before may turn the last.
    require_same_as_eager(made, 5, 2**-11 if name == "a prologue" else 2e-6)


@pytest.mark.parametrize("name", row_blocks.BODIES)
def test_gradients_of_row_blocks(name: str, tmp_path) -> None:
    made = row_blocks.row_blocks_pair(name, tmp_path, training=True)
    assert "_backward(_kernels" in made.text
    require_same_as_eager(made, 70)


def require_same_as_eager(made: Pair, batch: int, roundings: float = 2e-6) -> None:
    """As near float64 as eager is, but for a few roundings; NaN where it has them."""
    original, new = made.models()
    given = [x.to(next(new.parameters()).dtype) for x in made.inputs(batch)]
    exact, eager, ours = (
        _wanted(model, inputs)
        for model, inputs in (
            (copy.deepcopy(original).double(), [x.double() for x in given]),
            (original, given),
            (new, given),
        )
    )
    for value, theirs, mine in zip(exact, eager, ours, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert torch.equal(mine.isnan(), value.isnan())
            value, theirs, mine = (each.double().nan_to_num(0.0) for each in (value, theirs, mine))
            usual, scale = (theirs - value).abs().max(), value.abs().max()
            assert (mine - value).abs().max() <= 2 * usual + roundings * scale


def _wanted(model: Any, inputs: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    inputs = [x.detach().requires_grad_() for x in inputs]
    results = [each for each in leaves(model(*inputs)) if each.requires_grad]
    wanted = [*inputs, *model.parameters()]
    return torch.autograd.grad(total(tuple(results)), wanted, allow_unused=True)


def test_no_gradients_no_saving(pair: Pair) -> None:
    """What is kept for a backward is written only where one may come."""
    _, new = pair.models()
    with torch.no_grad(), CountCalls() as count:
        new(*pair.inputs())
    assert not any("_saving" in str(function) for function, _ in count.ours)
    assert kernels_in(lambda: new(*pair.inputs())) > 0


def test_a_wrong_backward_is_seen(tmp_path) -> None:
    """The comparison above is one that fails."""
    made = emitted_on("cpu", tmp_path)
    text = made.text.replace("return grad_", "return 1.001 * grad_")
    assert text != made.text
    module = load_file(tmp_path / "wrong_new.py", text)
    wrong = Pair("wrong", made.source, text, 0, made.original, module)
    with pytest.raises(AssertionError):
        require_near(wrong, wrong.inputs())
