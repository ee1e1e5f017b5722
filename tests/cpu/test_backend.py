"""`torch.compile(model, backend="opweld")`: right in every use that torch.compile has."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from tests.models.through_dynamo import Branches, Tail, forgotten  # noqa: F401
from torch import Tensor, nn

import opweld
from opweld.dynamo import backend, first_call
from opweld.dynamo.backend import OpweldWarning
from opweld.dynamo.first_call import first_difference


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend="opweld", options=options or None)


def kernels() -> list[tuple[str, ...]]:
    return [graph.kernels for graph in opweld.graphs()]


def test_the_name_is_known_to_torch() -> None:
    assert "opweld" in torch._dynamo.list_backends()


def test_a_model_runs_its_kernels_and_stays_as_it_is() -> None:
    model, x = Tail().eval(), torch.randn(5, 8)
    with torch.no_grad():
        expected, found = model(x), compiled(model)(x)
    torch.testing.assert_close(found, expected)
    (graph,) = opweld.graphs()
    assert graph.kernels and graph.reason == "" and graph.place.startswith("through_dynamo.py:")
    assert "class ModelNew(_Original)" in graph.text
    assert "# through_dynamo.py:" in graph.text and "self.fc_weight" in graph.text
    assert ";  " not in graph.text.partition("def _apart")[0], "it is to be read"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches_on_values_are_graphs_of_their_own(sign: float) -> None:
    model, x = Branches(), sign * torch.rand(4, 32)
    torch.testing.assert_close(compiled(model)(x), model(x))
    assert len(kernels()) == 3 and all(kernels())


def test_calls_that_follow_compile_nothing() -> None:
    made, x = compiled(Tail()), torch.randn(3, 8)
    for _ in range(3):
        made(x)
    assert len(kernels()) == 1


def test_sizes_that_change() -> None:
    """Of the first axis any number by the same kernels; of others each its own, up to a limit."""

    def f(x: Tensor) -> Tensor:
        return torch.tanh(x).sum(-1) * x.shape[1] + x.shape[0]

    made = torch.compile(f, backend="opweld", dynamic=True)
    for rows in (3, 4, 7, 2):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(made(x), f(x))
    assert len(kernels()) == 1
    for columns in range(6, 6 + backend.MOST_SIZES + 1):
        x = torch.randn(3, columns)
        torch.testing.assert_close(made(x), f(x))
    assert len([each for each in kernels() if each]) == backend.MOST_SIZES
    assert "other sizes" in opweld.graphs()[-1].reason


def test_without_dynamic_torch_marks_what_changed() -> None:
    model = Tail().eval()
    made = compiled(model)
    for rows in (3, 4, 9):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(made(x), model(x))
    assert len(kernels()) == 2, "one of three rows, one of any number"


@pytest.mark.parametrize("by_kernels", [False, True])
def test_training_goes_as_eager_does(by_kernels: bool) -> None:
    torch.manual_seed(3)
    eager = nn.Sequential(Tail(), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)).train()
    other = copy.deepcopy(eager)
    made = compiled(other, training=True) if by_kernels else compiled(other)
    losses = []
    for model, run in ((eager, eager), (other, made)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        torch.manual_seed(4)
        for _ in range(8):
            x = torch.randn(32, 8)
            loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert any(kernels())
    assert any("_backward(_kernels, _need" in graph.text for graph in opweld.graphs()) == by_kernels
    assert losses[8:] == pytest.approx(losses[:8], rel=1e-4)
    for (name, left), (_, right) in zip(
        eager.state_dict().items(), other.state_dict().items(), strict=True
    ):
        torch.testing.assert_close(left, right, msg=name, rtol=1e-4, atol=1e-5)


def test_the_first_call_counts_once() -> None:
    """Comparing it leaves neither buffers nor generators another way."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.GELU()).train()
    other = copy.deepcopy(model)
    x = torch.randn(6, 8)
    torch.manual_seed(1)
    expected = model(x)
    torch.manual_seed(1)
    found = compiled(other)(x)
    assert any(kernels())
    torch.testing.assert_close(found, expected)
    assert other[1].num_batches_tracked == 1
    torch.testing.assert_close(other[1].running_mean, model[1].running_mean)


def test_layers_that_are_alike_share_a_graph() -> None:
    layers = [Tail().eval() for _ in range(3)]
    for layer in layers:
        layer.compile(backend="opweld")
    x = torch.randn(4, 8)
    for layer in layers:
        torch.testing.assert_close(layer(x), layer.forward(x))
    assert len(set(kernels())) == 1
    with torch.no_grad():
        layers[1].fc.weight.mul_(2)
    torch.testing.assert_close(layers[1](x), layers[1].forward(x))


def test_autocast_has_kernels() -> None:
    model, x = Tail().eval(), torch.randn(4, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=2e-2, atol=2e-2)
    assert all(kernels())


def test_training_under_autocast_with_dropout() -> None:
    """Where neither float64 nor float32's tolerance says what is right."""
    model = nn.Sequential(Tail(), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 4)).train()
    other, x = copy.deepcopy(model), torch.randn(512, 8)
    found = []
    for each, run in ((model, model), (other, compiled(other))):
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.bfloat16):
            y = run(x)
        found.append([y, *torch.autograd.grad(y.float().square().sum(), list(each.parameters()))])
    assert any(kernels())
    for left, right in zip(*found, strict=True):
        assert (left - right).abs().max() <= 3e-2 * left.abs().max() + 1e-6


def test_regions_without_gradients_stay_so() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            y = torch.tanh(x) * 3
        return y, torch.sigmoid(x) * y

    x = torch.randn(9, requires_grad=True)
    y, z = compiled(f)(x)
    assert not y.requires_grad and z.requires_grad and all(kernels())
    (found,) = torch.autograd.grad(z.sum(), x)
    (expected,) = torch.autograd.grad(f(x)[1].sum(), x)
    torch.testing.assert_close(found, expected)


def test_fullgraph_and_containers() -> None:
    def f(given: dict[str, Tensor], scale: float = 2.0) -> dict[str, Any]:
        return {"y": torch.exp(-given["x"]) * scale, "n": 3, "rest": [given["x"] + 1]}

    made = torch.compile(f, backend="opweld", fullgraph=True)
    for scale in (2.0, 3.0):
        x = torch.randn(4, 3)
        found, expected = made({"x": x}, scale), f({"x": x}, scale)
        assert found["n"] == 3
        torch.testing.assert_close(found["y"], expected["y"])
        torch.testing.assert_close(found["rest"], expected["rest"])


def test_a_region_of_its_own_runs_as_torch_has_it() -> None:
    model = Tail()

    def f(x: Tensor) -> Tensor:
        checkpointed = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
        return torch.relu(checkpointed) + 1

    x = torch.randn(4, 8)
    torch.testing.assert_close(compiled(f)(x), f(x))
    assert "region of its own" in opweld.graphs()[0].reason


def test_what_cannot_be_captured_runs_as_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any, **kwargs: Any) -> Any:
        raise opweld.UserError("it cannot be captured", next_step="wait")

    monkeypatch.setattr(backend, "optimize", refuses)
    model, x = Tail(), torch.randn(2, 8)
    made = compiled(model)
    with pytest.warns(OpweldWarning, match=r"graph at through_dynamo.py:\d+ .*cannot be captured"):
        torch.testing.assert_close(made(x), model(x))
    torch.testing.assert_close(made(x), model(x)), "and warns once"


def test_what_has_nothing_to_fuse_says_so() -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    torch.testing.assert_close(compiled(model)(x), model(x))
    (graph,) = opweld.graphs()
    assert graph.kernels == () and graph.reason


class Wrong(nn.Module):
    """Not what the graph computes, in some way."""

    def __init__(self, change: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Any:
        return self.change(self, x)


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8) + 1)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        self.count.add_(1)
        return (torch.sigmoid(x) * self.weight,)


def right(model: nn.Module, x: Tensor) -> tuple[Tensor]:
    model.count.add_(1)
    return (torch.sigmoid(x) * model.weight,)


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        (right, None),
        (lambda m, x: (right(m, x)[0] * 1.001,), "output[0]"),
        (lambda m, x: (right(m, x)[0] * torch.nan,), "output[0]"),
        (lambda m, x: (right(m, x)[0].double(),), "float64"),
        (lambda m, x: right(m, x)[0], "returns"),
        (lambda m, x: (right(m, x)[0], x), "returns"),
        (lambda m, x: (torch.sigmoid(x) * m.weight,), "state"),
        (lambda m, x: (right(m, x.add_(0.5).sub(0.5))[0],), "input"),
        (lambda m, x: (right(m, x.detach())[0],), "gradient 0"),
        (lambda m, x: right(m, x.detach() + 2 * (x - x.detach())), "gradient 0"),
        (lambda m, x: (torch.sigmoid(x) * m.weight.detach() + 0 * m.count.add_(1),), "gradient 1"),
    ],
)
def test_the_first_call_shows_what_is_wrong(
    change: Callable[[nn.Module, Tensor], Any], clause: str | None
) -> None:
    original, x = Original(), torch.randn(4, 8, requires_grad=True)
    new = Wrong(change)
    new.weight = original.weight
    new.register_buffer("count", original.count)
    drawn = torch.get_rng_state()
    found = first_difference(original, new, [x])
    assert torch.equal(torch.get_rng_state(), drawn)
    assert found is None if clause is None else clause in (found or "")
    assert original.count == 0 and original.weight.grad is None and x.grad is None


def test_compiling_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = backend.optimize

    def optimize(*args: Any, **kwargs: Any) -> Any:
        torch.randn(3)
        return whole(*args, **kwargs)

    monkeypatch.setattr(backend, "optimize", optimize)
    model = Tail()
    state = torch.get_rng_state()
    compiled(model, verify="off")(torch.zeros(2, 8))
    assert torch.equal(torch.get_rng_state(), state) and all(kernels())
    assert "Not verified" in opweld.graphs()[0].text


def test_under_autocast_gradients_may_be_as_far_off_as_it_rounds() -> None:
    original, x = Original(), torch.randn(4, 8, requires_grad=True)
    new = Wrong(lambda m, x: right(m, x.detach() + 1.01 * (x - x.detach())))
    new.weight = original.weight
    new.register_buffer("count", original.count)
    assert "gradient 0" in (first_difference(original, new, [x]) or "")
    with torch.autocast("cpu", torch.bfloat16):
        assert first_difference(original, new, [x]) is None


def test_kernels_that_are_wrong_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "first_difference", lambda *args: "output[0]: error")
    model, x = Tail(), torch.randn(2, 8)
    with pytest.warns(OpweldWarning, match="its kernels are wrong"):
        assert torch.equal(compiled(model)(x), model(x))
    torch._dynamo.reset()
    compiled(model, verify="off")(x)
    assert kernels()[-1]


def test_a_comparison_that_fails_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise RuntimeError("no float64 here")

    monkeypatch.setattr(backend, "first_difference", fails)
    model, x = Tail(), torch.randn(2, 8)
    with pytest.warns(OpweldWarning, match="could not be compared: no float64 here"):
        assert torch.equal(compiled(model)(x), model(x))


def test_a_buffer_that_is_another_tensor_each_time() -> None:
    """Kernels are the same, right each time, and what is remembered of it is bounded."""
    model, x = Tail().eval(), torch.randn(16, 8)
    found = list[Any]()

    def kept(*args: Any, **kwargs: Any) -> Any:
        found.append(backend.opweld(*args, **kwargs))
        return found[-1]

    made = torch.compile(model, backend=kept)
    with torch.no_grad():
        for number in range(backend._MOST_RUNS + 3):
            model.scale = torch.full((16,), float(number))
            torch._dynamo.mark_static_address(model.scale)
            torch.testing.assert_close(made(x), model(x))
    assert len({graph.text for graph in opweld.graphs()}) <= 2
    assert found and all(len(graph._runs) <= backend._MOST_RUNS for graph in found)


def test_the_judge_verifies_where_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    whole = backend.optimize

    def optimize(*args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs["check"])
        return whole(*args, **kwargs)

    monkeypatch.setattr(backend, "optimize", optimize)
    model, x = Tail().eval(), torch.randn(2**16, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, verify="full")(x), model(x))
    assert asked == [True] and all(kernels())
    assert "Not verified" not in opweld.graphs()[0].text


def test_files_are_saved(tmp_path: Path) -> None:
    compiled(Branches(), save=str(tmp_path / "out"))(torch.rand(4, 8))
    files = sorted((tmp_path / "out").glob("graph_*.py"))
    texts = [file.read_text("utf-8") for file in files]
    assert len(files) == 3 and all("class ModelNew" in text for text in texts)
    assert all("Compared with eager and float64" in text for text in texts)
    assert not any("Not verified" in text for text in texts)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"verify": "sometimes"}, "verify is 'sometimes'; use one of first, full, off"),
        ({"save": 3}, "save is 3: .*; name a folder"),
        ({"save": __file__}, "save is .*File exists.*; name a folder"),
        ({"verifies": "off"}, "has no option verifies; use verify or save or training"),
        ({"training": "yes"}, "training is 'yes'; use True or False"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        compiled(Tail(), **options)(torch.randn(2, 8))


def test_the_blocks_of_its_page_run() -> None:
    page = Path(__file__).parents[2] / "docs" / "torch-compile.md"
    x = torch.randn(4, 8)
    names = {"torch": torch, "opweld": opweld, "model": Tail().eval(), "x": x}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M):
        exec(block, names)
    assert names["model"](x).shape == (4, 16) and len(kernels()) == 1


def test_generators_are_as_before() -> None:
    state = torch.get_rng_state()
    with first_call.generators_restored():
        torch.randn(3)
    assert torch.equal(state, torch.get_rng_state())
