"""Random numbers of one run, given to the same model in another precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.judge.pairs import SAME, failing, judge_pair, named
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.checkpoint import checkpoint

from opweld.judge.load import Call, seed_all
from opweld.judge.numerics.differentiate import Backward, differentiate, draw_grad_outputs, record
from opweld.judge.numerics.draws import OtherDraws, Replaying, run_recorded
from opweld.judge.numerics.precision import FLOAT64, NoReference

SEED = 5


class Random(nn.Module):
    """Two layers, and between them a function that draws."""

    def __init__(self, draw: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 48), nn.Linear(48, 8)
        self.draw = draw

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.draw(self.first(x)))
        return result


def _attention(x: Tensor) -> Tensor:
    heads = x.view(1, 4, -1, 48)
    return F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.3).reshape_as(x)


def _twice(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5) + F.dropout(x * torch.randn_like(x), 0.25)


def _chosen(x: Tensor) -> Tensor:
    return x * torch.multinomial(torch.ones(48), 48)[torch.randperm(48)]


DRAWING: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "all dropped": lambda x: F.dropout(x, 1.0) + F.dropout(x, 0.1),
    "in place": lambda x: F.dropout(x, 0.4, inplace=True),
    "of channels": lambda x: F.dropout2d(x.view(-1, 6, 2, 4), 0.5).reshape_as(x),
    "alpha": lambda x: F.alpha_dropout(x, 0.2, training=True),
    "of attention": _attention,
    "several": _twice,
    "noise": lambda x: x + torch.randn(x.shape, dtype=torch.float32) * 0.3,
    "uniform": lambda x: torch.where(torch.rand_like(x) < 0.5, x, -x),
    "in new memory": lambda x: x * torch.empty_like(x).exponential_(),
    "categories": lambda x: F.gumbel_softmax(x, tau=0.7),
    "indices": _chosen,
    "native dropout": lambda x: torch.native_dropout(x, 0.3, True)[0],
}


def _run(draw: Callable[[Tensor], Tensor]) -> tuple[nn.Module, Call, Tensor]:
    seed_all(SEED)
    model, call = Random(draw), Call((torch.randn(16, 32),), {})
    seed_all(SEED)
    return model, call, model(*call.args)


@pytest.mark.parametrize("name", DRAWING)
def test_float64_gets_the_same_random_numbers(name: str) -> None:
    model, call, eager = _run(DRAWING[name])
    again, drawn = run_recorded(model, call, SEED)
    assert drawn and torch.equal(again, eager), "recording changes nothing"
    wide = FLOAT64.model(model)
    # from another random state, so that nothing is right by chance
    exact = FLOAT64.run(wide, call.map(FLOAT64.fresh), SEED + 1, draws=drawn)
    assert exact.dtype is torch.float64
    torch.testing.assert_close(eager.double(), exact, rtol=1e-5, atol=1e-5)
    others = FLOAT64.run(wide, call.map(FLOAT64.fresh), SEED + 1)
    assert not torch.allclose(eager.double(), others, rtol=1e-2, atol=1e-2)


def test_what_draws_nothing_has_no_draws() -> None:
    model, call, _ = _run(lambda x: F.dropout(x, 0.4, training=False))
    assert run_recorded(model, call, SEED)[1] == ()


def _own_generator(x: Tensor) -> Tensor:
    return x + torch.randn(48, generator=torch.Generator().manual_seed(1))


def test_a_generator_of_the_models_own_is_left_to_it() -> None:
    model, call, _ = _run(_own_generator)
    assert run_recorded(model, call, SEED)[1] == ()


def test_numbers_that_an_operator_uses_up_inside_are_not_known() -> None:
    model, call, _ = _run(lambda x: F.rrelu(x, training=True))
    with pytest.raises(OtherDraws, match="rrelu_with_noise.* draws random numbers inside"):
        run_recorded(model, call, SEED)


def test_numbers_that_no_operator_draws_are_not_known() -> None:
    def moved(x: Tensor) -> Tensor:
        torch.set_rng_state(
            torch.Generator().manual_seed(int(torch.initial_seed()) + 1).get_state()
        )
        return F.dropout(x, 0.5)

    model, call, _ = _run(moved)
    with pytest.raises(OtherDraws, match="outside of PyTorch's operators"):
        run_recorded(model, call, SEED)


def test_numbers_that_recording_changes_are_not_known() -> None:
    def moved(x: Tensor) -> Tensor:
        shift = 0 if _get_current_dispatch_mode() is None else 1
        return F.dropout(x.roll(shift, 0), 0.5)

    model, call, eager = _run(moved)
    with pytest.raises(OtherDraws, match="where they are recorded"):
        run_recorded(model, call, SEED, [eager])


def _by_precision(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5) if x.dtype is torch.float32 else x + torch.rand_like(x)


def _fewer(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5) if x.dtype is torch.float32 else x


def _other_shape(x: Tensor) -> Tensor:
    return F.dropout(x if x.dtype is torch.float32 else x[:2], 0.5)


@pytest.mark.parametrize("draw", [_by_precision, _fewer, _other_shape])
def test_other_draws_in_float64_are_no_reference(draw: Callable[[Tensor], Tensor]) -> None:
    model, call, _ = _run(draw)
    drawn = run_recorded(model, call, SEED)[1]
    with pytest.raises(NoReference, match="in another precision, .* draws"):
        FLOAT64.run(FLOAT64.model(model), call.map(FLOAT64.fresh), SEED, draws=drawn)


def test_a_rematerialized_forward_draws_others() -> None:
    """Where nobody looks, the gradients would be those of another dropout."""

    def kept_little(x: Tensor) -> Tensor:
        found: Tensor = checkpoint(lambda y: F.dropout(y, 0.5) * y, x, use_reentrant=False)
        return found

    model, call, _ = _run(kept_little)
    graphs = record(model, [call], SEED, Backward())
    assert graphs.draws_random
    given = draw_grad_outputs(graphs, SEED, Backward())
    with pytest.raises(OtherDraws), Replaying((), FLOAT64.tensor):
        differentiate(graphs, given, Backward())


MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = x + F.dropout(torch.tanh(layer(x)), 0.2, self.training)
        return x

def get_inputs():
    return [torch.randn(8, 64)]

def get_init_inputs():
    return []
"""
ROUNDED = """
class ModelNew(Base):
    def forward(self, x):
        for layer in self.layers:
            y = F.linear(ROUND(x), layer.weight, layer.bias)
            x = x + F.dropout(torch.tanh(y), 0.2, self.training)
        return x
"""


def test_a_random_model_is_compared_with_float64(tmp_path: Path) -> None:
    judgement = judge_pair(
        tmp_path, MODEL, ROUNDED.replace("ROUND", "(lambda x: x.double().float())")
    )
    assert judgement.verdict.passed, judgement.verdict.reason
    main = named(judgement, "own inputs")
    assert main.error_vs_f64 and main.eager_error_vs_f64
    assert main.eager_error_vs_f64.max < 1e-5
    bad = judge_pair(tmp_path, MODEL, ROUNDED.replace("ROUND(x)", "x.bfloat16().float()"))
    assert {"own inputs", "gradients"} <= failing(bad)


INTEGERS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, 256)
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(6))

    def forward(self, words):
        x = self.words(words)
        for layer in self.layers:
            x = layer(4 * x + torch.normal(torch.zeros_like(x), 0.1))
        return x

def get_inputs():
    return [torch.randint(100, (4, 16))]

def get_init_inputs():
    return []
"""
HALVES = """
class ModelNew(Base):
    def forward(self, words):
        x = self.words(words)
        for layer in self.layers:
            y = 4 * x + torch.normal(torch.zeros_like(x), 0.1)
            parts = [p @ w.t() for p, w in zip(y.split(32, -1), layer.weight.split(32, -1))]
            x = sum(parts) + layer.bias.to(parts[0].dtype)
        return x
"""


def test_whole_numbers_have_the_noise_of_the_weights(tmp_path: Path) -> None:
    """Without a reference: nothing of the inputs can be moved by a rounding."""
    judgement = judge_pair(tmp_path, INTEGERS, HALVES)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert named(judgement, "own inputs").error_vs_f64 is None
    bad = judge_pair(tmp_path, INTEGERS, HALVES.replace("+ layer.bias", "+ 1.001 * layer.bias"))
    assert "own inputs" in failing(bad)


def test_the_weights_are_what_they_were(tmp_path: Path) -> None:
    judgement = judge_pair(tmp_path, INTEGERS, SAME)
    assert judgement.verdict.passed and judgement.verdict.grade == "A"
