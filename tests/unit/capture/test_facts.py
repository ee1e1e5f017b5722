"""What the forward read, what must hold for the graph, and that capture leaves no trace."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from tests.capturing import assert_agrees, captured, module_of
from torch import nn
from torch.nn.utils import parametrizations

from opweld.capture import capture
from opweld.errors import CaptureError, OriginalKept
from opweld.ir.contract import CallableValue, OpaqueValue
from opweld.ir.ops import Op

X = torch.randn(4, 8)


def fact_of(model: nn.Module, path: str = "", x: torch.Tensor = X):
    facts = captured(model, x).variants[0].contract.modules
    return next(fact for fact in facts if fact.path == path)


class Settings:
    def __init__(self) -> None:
        self.scale = 3.0
        self.table = torch.ones(3)


def test_attributes_that_the_forward_read() -> None:
    def forward(self, x):
        unused = self.dims[0] + len(self.names["a"])
        return self.act(x) * self.scale * self.settings.scale + unused + self.offset

    model = module_of(
        forward,
        scale=2.0,
        dims=(1, [2, 3]),
        names={"a": "text"},
        settings=Settings(),
        act=nn.functional.silu,
        offset=None or 1,
        never=5,
    )
    assert dict(fact_of(model).attributes) == {
        "act": CallableValue("torch.nn.functional:silu"),
        "dims": (1, [2, 3]),
        "names": {"a": "text"},
        "offset": 1,
        "scale": 2.0,
        "settings": OpaqueValue(f"{Settings.__module__}:Settings"),
        "settings.scale": 3.0,
    }


def test_attributes_of_submodules_and_of_the_class() -> None:
    class Scaled(nn.Module):
        factor = 4

        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(8, eps=1e-3)

        def forward(self, x):
            return self.norm(x) * self.factor

    model = Scaled()
    assert dict(fact_of(model).attributes) == {"factor": 4}
    inner = fact_of(model, "norm")
    assert inner.type_name == "torch.nn.modules.normalization:LayerNorm"
    assert dict(inner.attributes) == {"eps": 1e-3, "normalized_shape": (8,)}


def test_modules_that_did_not_run_are_no_facts() -> None:
    model = module_of(lambda self, x: self.used(x), used=nn.ReLU(), idle=nn.Linear(8, 8))
    facts = captured(model, X).variants[0].contract.modules
    assert [fact.path for fact in facts] == ["", "used"]


def test_a_container_that_was_walked_fixes_its_children() -> None:
    model = module_of(lambda self, x: self.layers(x), layers=nn.Sequential(nn.ReLU(), nn.Tanh()))
    assert dict(fact_of(model, "layers").attributes)["_modules"] == ("0", "1")


def test_weights_by_their_path() -> None:
    def forward(self, x):
        return self.layers[0](x) * self.scales[0] + self.offset + self.named["k"].bias

    model = module_of(
        forward,
        layers=nn.ModuleList([nn.Linear(8, 8)]),
        scales=nn.ParameterList([nn.Parameter(torch.ones(8))]),
        named=nn.ModuleDict({"k": nn.Linear(8, 8)}),
        offset=torch.ones(8),
    )
    variant = captured(model, X).variants[0]
    accesses = [node.attrs.access for node in variant.graph.weights]
    assert accesses == [
        "self.layers[0].weight",
        "self.layers[0].bias",
        "self.scales[0]",
        "self.named['k'].bias",
        "self.offset",
    ]
    paths = [fact.path for fact in variant.contract.weights]
    assert paths == ["layers.0.weight", "layers.0.bias", "scales.0", "named.k.bias", "offset"]


def test_mode_matters_only_where_the_graph_changes() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)
            self.act = nn.ReLU()

        def forward(self, x):
            return self.drop(self.act(x))

    facts = captured(Block(), X).variants[0].contract.modules
    assert [(fact.path, fact.mode) for fact in facts] == [
        ("", None),
        ("drop", False),
        ("act", None),
    ]
    idle = module_of(lambda self, x: x * 2 if self.training else x + x, drop=nn.Dropout())
    assert [fact.mode for fact in captured(idle, X).variants[0].contract.modules] == [False]
    same = module_of(lambda self, x: x * 2 if self.training else x * 2)
    assert fact_of(same).mode is None


def test_shared_modules_are_facts_by_every_name() -> None:
    act = nn.LeakyReLU(0.2)
    facts = captured(nn.Sequential(nn.Linear(8, 8), act, nn.Linear(8, 8), act), X)
    found = {f.path: dict(f.attributes) for f in facts.variants[0].contract.modules}
    assert found["1"] == found["3"] == {"inplace": False, "negative_slope": 0.2}


def test_a_tied_weight_must_stay_tied() -> None:
    model = module_of(lambda self, x: self.b(self.a(x)), a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    model.b.weight = model.a.weight
    contract = captured(model, X).variants[0].contract
    ties = [fact for fact in contract.inputs if " is " in fact.access]
    assert [(t.access, t.literal) for t in ties] == [("(self.a.weight is self.b.weight)", True)]


def test_functions_as_attributes() -> None:
    limit = 2.0
    model = module_of(
        lambda self, x: self.double(x) + self.smooth(x) + self.act(x),
        double=lambda x: x * 2,
        smooth=functools.partial(nn.functional.gelu, approximate="tanh"),
        act=torch.tanh,
    )
    facts = dict(fact_of(model).attributes)
    assert facts["act"] == CallableValue("torch:tanh")
    assert facts["smooth.func"] == CallableValue("torch._C._nn:gelu")
    assert facts["smooth.keywords"] == {"approximate": "tanh"}
    assert facts["double"] == OpaqueValue("builtins:function")
    assert facts["double.__code__.co_consts"] == (None, 2)
    holding = module_of(lambda self, x: self.clip(x), clip=lambda x: x.clamp(max=limit))
    with pytest.raises(CaptureError, match=r"self\.clip is a function that holds values"):
        captured(holding, X)


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Rounds(nn.Module):
    def forward(self, x):
        return Straight.apply(x) * 2


def test_gradients_of_the_users_own_are_noted() -> None:
    capture = captured(Rounds(), X)
    assert not any(variant.contract.gradients for variant in capture.variants)
    said = "the forward applies Straight, which has its own gradient"
    assert capture.kept == (("with gradients", said),)
    assert torch.equal(Straight.apply(X), X.round())
    plain = captured(module_of(lambda self, x: torch.relu(x)), X)
    assert all(variant.contract.gradients for variant in plain.variants) and not plain.kept


def test_gradients_of_its_own_in_training_alone_make_a_graph_of_training() -> None:
    """The results are the same: the gradient is turned."""

    def forward(self, x):
        return torch.relu(Reversed.apply(x) if self.training else x)

    in_eval, trained = captured(module_of(forward), X).variants
    assert (in_eval.training, in_eval.contract.gradients) == (False, True)
    assert (trained.training, trained.contract.gradients) == (True, False)


def test_submodules_are_called_as_they_like() -> None:
    """A GraphModule has attributes of these names, too."""
    model = nn.Sequential()
    model.add_module("code", nn.Linear(8, 8))
    model.code.register_buffer("graph", torch.zeros(8))
    graph = captured(model, X).variants[0].graph
    assert [node.attrs.access for node in graph.weights] == ["self.code.weight", "self.code.bias"]


def test_parts_without_gradients_are_in_the_graph() -> None:
    def forward(self, x):
        with torch.no_grad():
            y = torch.sigmoid(x)
            with torch.no_grad():
                z = y + 1
        return y * x, z

    graph = captured(module_of(forward), X).variants[0].graph
    calls = [node.attrs.target for node in graph.nodes() if node.op is Op.CALL]
    assert calls == ["aten.detach.default"]  # z is computed of what has no gradient any more
    assert {Op.SIGMOID, Op.ADD, Op.MUL} <= {node.op for node in graph.nodes()}


@pytest.mark.parametrize("off", [torch.no_grad, lambda: torch.set_grad_enabled(False)])
@pytest.mark.parametrize("own", [True, False])
def test_gradients_off_under_an_autocast_of_its_own_are_noted(off, own: bool) -> None:
    """Export keeps the autocast, and not that gradients are off in it."""

    def forward(self, x):
        with torch.autocast("cpu", enabled=own), off():
            y = torch.sigmoid(x)
        return y * x

    said = "the forward switches gradients off under an autocast of its own"
    kept = (("with gradients", said),) if own else ()
    assert captured(module_of(forward), X).kept == kept


def test_random_numbers_are_drawn_as_the_original_draws_them() -> None:
    model = module_of(lambda self, x: (torch.randn_like(x) * x, torch.rand(3)))
    graph = captured(model, X).variants[0].graph
    assert [n.attrs.target for n in graph.nodes() if n.op is Op.CALL] == [
        "aten.randn_like.default",
        "aten.rand.default",
    ]
    unread = module_of(lambda self, x: (torch.randn_like(x), torch.rand(3))[1])
    with pytest.raises(CaptureError, match="random numbers"):
        captured(unread, X)


def test_calls_that_draw_are_marked() -> None:
    swapped = module_of(
        lambda self, x: ((a := torch.randn_like(x)), torch.rand(3) @ x.T[:3], a)[1:]
    )
    calls = [n for n in captured(swapped, X).variants[0].graph.nodes() if n.op is Op.CALL]
    by_serial = sorted(calls, key=lambda node: node.serial)
    drawing = [n.attrs.target for n in by_serial if n.attrs.draws]
    assert drawing == ["aten.randn_like.default", "aten.rand.default"]
    assert any(not n.attrs.draws for n in calls)


def test_capture_leaves_no_trace() -> None:
    model = module_of(
        lambda self, x: self.norm(self.drop(x)) * self.table,
        norm=nn.BatchNorm1d(8),
        drop=nn.Dropout(),
        table=torch.arange(8.0),
    )
    model.norm.train()
    model.drop.eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    held = {path: dict(vars(m)) for path, m in model.named_modules()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    capture(model, (X,), {}, name="model")
    assert torch.equal(torch.rand(2), expected)
    assert model.norm.training and not model.drop.training
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())
    assert {path: dict(vars(m)) for path, m in model.named_modules()} == held
    assert "__getattribute__" not in vars(nn.Module)


def test_a_capture_that_fails_leaves_no_hook_of_torchs() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(8))

        def forward(self, x):
            self.mean = self.mean + x.mean(0)
            return x.amax(1) if x.sum() > 0 else x

    hooks = nn.modules.module._global_buffer_registration_hooks
    before = dict(hooks)
    with pytest.raises(CaptureError):
        capture(Fails(), (X,), {}, name="model")
    assert dict(hooks) == before


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.history = []
        self.register_buffer("count", torch.zeros(()))


class Assigns(Counting):
    def forward(self, x):
        self.calls = self.calls + 1
        return x * 2


class Appends(Counting):
    def forward(self, x):
        self.history.append(1)
        return x * 2


class Writes(Counting):
    def forward(self, x):
        return x.add_(1)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Assigns, "the forward assigns to self.calls"),
        (Appends, "the forward changes what self.history holds"),
        (Writes, "test_facts.py:%d `return x.add_(1)`: the forward changes its input x"),
    ],
)
def test_effects_are_refused(model: type[nn.Module], reason: str) -> None:
    module = model()
    with pytest.raises(CaptureError) as refusal:
        captured(module, X)
    line = refusal.value.where.line if refusal.value.where else 0
    assert str(refusal.value) == (reason % line if "%d" in reason else reason)
    assert (module.calls, module.history, module.count.item()) == (0, [], 0)


def test_attachments_are_refused() -> None:
    hooked = nn.Sequential(nn.Linear(8, 8))
    hooked[0].register_forward_hook(lambda module, args, result: result * 2)
    with pytest.raises(CaptureError, match="submodule '0' has hooks"):
        captured(hooked, X)
    with pytest.raises(CaptureError, match="the module has a parametrization"):
        captured(parametrizations.weight_norm(nn.Linear(8, 8)), X)
    patched = nn.ReLU()
    patched.forward = lambda x: x
    with pytest.raises(CaptureError, match="a forward of its own object"):
        captured(patched, X)


@pytest.mark.parametrize(("dropout", "draws"), [(0.0, False), (0.5, True)])
def test_attention_reads_operands_of_any_layout(dropout: float, draws: bool) -> None:
    """It draws for what it drops alone, and for scores: in no tensor's order."""
    attention = nn.functional.scaled_dot_product_attention
    model = module_of(lambda self, x: attention(x, x, x, dropout_p=dropout))
    variant = captured(model, torch.randn(2, 4, 32, 16)).variants[0]
    calls = [n.attrs for n in variant.graph.nodes() if n.op is Op.CALL]
    assert [call.draws for call in calls] == [draws]
    assert not variant.contract.row_major


def _written_after(self, x):
    y = x.transpose(0, 1)
    z = y.reshape(-1)
    y.add_(1)
    return z * 2


def _written_before(self, x):
    y = torch.zeros_like(x).masked_fill_(x > 0, 3.0)
    return torch.tanh(y.transpose(0, 1).reshape(-1)) * 2, y + 1


def _written_through(self, x):
    y = (x * 2).transpose(0, 1)
    y.reshape(-1).add_(1)
    return y * 2


@pytest.mark.parametrize("forward", [_written_after, _written_through])
def test_what_a_write_shows_or_not_by_the_layout_is_the_originals(forward: Any) -> None:
    with pytest.raises(OriginalKept, match="may share|changes its input"):
        captured(module_of(forward), X)


def test_what_was_written_before_a_view_is_in_a_copy_too() -> None:
    """A padding mask that is filled in place, then reshaped for all heads."""
    model = module_of(_written_before)
    assert_agrees(captured(model, X).variants[0], model, X)


def test_what_is_written_unrecorded_where_a_gradient_passes_is_the_originals() -> None:
    """Eager's gradient goes by what was written, as if it had not been."""

    def forward(self, x):
        y = torch.tanh(x)
        with torch.no_grad():
            y[0] = x[1] * 3
        return y * 2

    with pytest.raises(OriginalKept, match="without recording it"):
        captured(module_of(forward), X)
