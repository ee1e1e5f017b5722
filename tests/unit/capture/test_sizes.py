"""The symbolic batch: which sizes a graph is proved for."""

from __future__ import annotations

import logging

import pytest
import torch
from tests.capturing import assert_agrees, captured, module_of
from torch import nn

from opweld.capture import capture
from opweld.errors import UserError
from opweld.ir.contract import Needs
from opweld.ir.expr import symbol

X = torch.randn(6, 8)
S0 = symbol("s0")


def ranges(forward, *args, **held) -> list[tuple[int, int | None]]:
    model = module_of(forward, **held)
    variant = captured(model, *args).variants[0]
    assert_agrees(variant, model, *args)
    return [(fact.lower, fact.upper) for fact in variant.contract.symbols]


def test_any_size_for_pointwise_work() -> None:
    assert ranges(lambda self, x: torch.tanh(x) * 2, X) == [(0, None)]


def test_control_flow_on_the_size_bounds_it() -> None:
    assert ranges(lambda self, x: x * 2 if x.shape[0] > 4 else x, X) == [(5, None)]
    assert ranges(lambda self, x: x * 2 if x.shape[0] < 9 else x, X) == [(0, 8)]


def test_control_flow_at_zero_and_one_is_seen() -> None:
    """torch.export does not look at sizes 0 and 1; a capture there does."""
    assert ranges(lambda self, x: x * 2 if x.shape[0] != 1 else x, X) == [(2, None)]
    assert ranges(lambda self, x: x * 2 if x.shape[0] else x, X) == [(1, None)]
    assert ranges(lambda self, x: x.squeeze(), X) == [(2, None)]


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: x * 2 if x.shape[0] == 6 else x,
        lambda self, x: x * 2 if x.shape[0] % 2 == 0 else x,
        lambda self, x: x.view(2, -1, 8) * 2,
        lambda self, x: x.chunk(2, 0)[0] * 2,
    ],
)
def test_conditions_that_no_range_expresses_fix_the_size(forward) -> None:
    assert ranges(forward, X) == []


def sized(forward, dynamic, *args, **held):
    """The one variant of a capture whose axes of these inputs are dynamic, beside the batch."""
    model, needs = module_of(forward, **held), Needs(dynamic=dynamic)
    found = capture(model, args, {}, name="model", needs=needs)
    (variant,) = found.variants
    assert_agrees(variant, model, *args)
    return variant, found.kept


def test_axes_that_the_user_names_are_symbolic() -> None:
    x = torch.randn(6, 5, 8)
    variant, kept = sized(lambda self, x: torch.softmax(x, 1) * x.shape[1], (("x", 1),), x)
    assert [(f.access, f.lower, f.upper) for f in variant.contract.symbols] == [
        (("x", 0), 0, None),
        (("x", 1), 1, None),
    ]
    assert variant.graph.inputs[0].type.shape == (S0, symbol("s1"), 8) and not kept


def test_what_two_inputs_share_is_one_symbol() -> None:
    def forward(self, x, mask):
        return torch.where(mask, x, 0.0).sum(1) + self.place[: x.shape[1]].sum(0)

    x, mask = torch.randn(6, 5, 8), torch.ones(6, 5, 1, dtype=torch.bool)
    dynamic = (("x", 1), ("mask", 1))
    variant, kept = sized(forward, dynamic, x, mask, place=nn.Parameter(torch.randn(12, 8)))
    assert [(f.access, f.upper) for f in variant.contract.symbols] == [
        (("x", 0), None),
        (("x", 1), 12),
    ]
    assert not kept


def test_an_axis_that_cannot_be_dynamic_has_a_reason_and_the_batch_stays_so() -> None:
    x = torch.randn(6, 5, 8)
    variant, kept = sized(lambda self, x: x.view(-1, 8, 5) * 2, (("x", 1),), x)
    ((state, reason),) = kept
    assert state == "other sizes" and reason
    assert [fact.access for fact in variant.contract.symbols] == [("x", 0)]


@pytest.mark.parametrize(
    ("axis", "words"),
    [(("y", 1), "no input that is a tensor is called y"), (("x", 3), "x has axes 0 to 2")],
)
def test_an_axis_that_does_not_exist_is_refused(axis, words: str) -> None:
    with pytest.raises(UserError, match=words):
        sized(lambda self, x: x * 2, (axis,), torch.randn(6, 5, 8))


def test_an_example_of_one_row_fixes_the_size() -> None:
    assert ranges(lambda self, x: x * 2, torch.randn(1, 8)) == []


def test_inputs_share_a_size_where_they_must() -> None:
    model = module_of(lambda self, x, gain, shift: x * gain + shift)
    inputs = (torch.randn(8, 8), torch.randn(8), torch.randn(8, 1))
    variant = captured(model, *inputs).variants[0]
    shapes = [node.type.shape for node in variant.graph.inputs]
    assert shapes == [(S0, 8), (8,), (S0, 1)]
    (fact,) = variant.contract.symbols
    assert (fact.access, fact.lower, fact.upper) == (("x", 0), 0, None)
    assert_agrees(variant, model, torch.randn(3, 8), torch.randn(8), torch.randn(3, 1))


def test_inputs_that_never_meet_have_sizes_of_their_own() -> None:
    model = module_of(lambda self, x, y: (x * 2, y + 1))
    variant = captured(model, X, X).variants[0]
    assert [fact.name for fact in variant.contract.symbols] == ["s0", "s1"]
    assert_agrees(variant, model, torch.randn(3, 8), torch.randn(5, 8))


def test_the_most_common_leading_size_is_the_batch() -> None:
    model = module_of(lambda self, table, x, y: x * y + table.sum())
    variant = captured(model, torch.randn(3, 2), X, X).variants[0]
    assert [node.type.shape for node in variant.graph.inputs] == [(3, 2), (S0, 8), (S0, 8)]


def test_sizes_as_numbers() -> None:
    def forward(self, x):
        return x * x.shape[0] + torch.full((x.shape[0], 1), 0.5) / (x.shape[0] * 2), x.shape[0] + 1

    assert ranges(forward, X) == [(0, None)]


def test_fractions_of_sizes() -> None:
    def forward(self, x):
        return x * (1 / x.shape[0]) * x.shape[0] ** -0.5

    model = module_of(forward)
    variant = captured(model, X).variants[0]
    assert [fact.lower for fact in variant.contract.symbols] == [2]
    for rows in (2, 3, 77):
        assert_agrees(variant, model, torch.randn(rows, 8))


def test_a_fixed_size_on_request() -> None:
    model = module_of(lambda self, x: x * 2)
    variant = captured(model, X, batch=False).variants[0]
    assert variant.contract.symbols == () and variant.graph.inputs[0].type.shape == (6, 8)


def test_other_batch_sizes_through_a_library_call() -> None:
    model = module_of(
        lambda self, x: torch.relu(self.fc(x)).flatten() * 2 + self.fc.bias[0], fc=nn.Linear(8, 3)
    )
    variant = captured(model, X).variants[0]
    for rows in (0, 1, 2, 17):
        assert_agrees(variant, model, torch.randn(rows, 8))


def test_numbers_of_two_modules_may_be_one_at_some_sizes() -> None:
    """A capture at these sizes is compared with the graph: here, of how many a mean is in each."""

    def forward(self, x):
        return self.batch(x) + self.instance(x)

    norms = {"batch": nn.BatchNorm1d(4, affine=False), "instance": nn.InstanceNorm1d(4)}
    assert len(ranges(forward, torch.randn(6, 4, 9), **norms)) == 1


def test_what_takes_no_empty_tensor_is_tried_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """Torch logs a traceback for each operator that fails at a size that is tried."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(caplog.handler)
    try:
        found = ranges(lambda self, x: x.argmax() + x, torch.randn(6, 3))
    finally:
        logger.removeHandler(caplog.handler)
    assert [low for low, *_ in found] == [1]
    assert logger.name not in {record.name for record in caplog.records}
