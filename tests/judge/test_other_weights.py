"""The ways in which models get other weights, and judgements of pairs by them."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from tests.judge.pairs import LINEAR, SAME, failing, judge_pair, named
from torch import nn

from opweld.judge.verify import changes
from opweld.judge.verify.changes import NotForThis, change_weights
from opweld.judge.verify.other_weights import WAYS
from opweld.judge.verify.weights import copy_state, shake_state

ALL = (*WAYS.values(), changes.COPY, changes.DATA)


def two_layers() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 5)).eval()


@pytest.mark.parametrize("way", ALL)
def test_both_sides_get_the_same_other_weights(way: str) -> None:
    x = torch.randn(4, 5)
    one, other = (change_weights(two_layers(), 7, way) for _ in range(2))
    assert torch.equal(one(x), other(x))
    assert not torch.allclose(one(x), two_layers()(x), rtol=1e-4)


@pytest.mark.parametrize("way", sorted(set(ALL) - {changes.OPTIMIZER, changes.TIE}))
def test_the_values_are_those_of_the_seed(way: str) -> None:
    x, expected = torch.randn(4, 5), two_layers()
    expected.load_state_dict({**expected.state_dict(), **shake_state(copy_state(expected), 7)})
    assert torch.equal(change_weights(two_layers(), 7, way)(x), expected(x))


def test_which_memory_and_which_objects_stay() -> None:
    for way, same_object, same_memory in (
        (changes.COPY, True, True),
        (changes.DATA, True, True),
        (changes.OPTIMIZER, True, True),
        (changes.MOVE, True, False),
        (changes.ASSIGN, False, False),
        (changes.DEEP_COPY, False, False),
    ):
        model = two_layers()
        before = model[0].weight
        pointer = before.data_ptr()
        after = change_weights(model, 7, way)[0].weight
        assert (after is before) is same_object, way
        assert (after.data_ptr() == pointer) is same_memory, way


def test_tied_weights_stay_one_value_however_they_are_given() -> None:
    model = two_layers()
    model[2].weight = model[0].weight
    for way in (changes.ASSIGN, changes.FUNCTIONAL, changes.DEEP_COPY):
        changed = change_weights(copy.deepcopy(model), 7, way)
        x = torch.eye(5)
        inner = changed.model if way == changes.FUNCTIONAL else changed
        assert changed(x).shape == (5, 5)
        if inner is changed:
            assert torch.equal(changed[0].weight, changed[2].weight)


def test_a_copy_stays_when_what_it_was_made_from_changes(tmp_path: Path) -> None:
    model = two_layers()
    copied = change_weights(model, 7, changes.DEEP_COPY)
    assert not torch.equal(copied[0].weight, model[0].weight)
    new = """
    class ModelNew(Base):
        def __deepcopy__(self, memo):
            return self
    """
    judgement = judge_pair(tmp_path, LINEAR, new)
    assert failing(judgement) == {"other weights, in a deep copy"}


def test_what_a_model_has_not_cannot_be_changed() -> None:
    with pytest.raises(NotForThis, match="one shape"):
        change_weights(nn.Linear(3, 4), 1, changes.TIE)
    with pytest.raises(NotForThis, match="trained"):
        change_weights(nn.BatchNorm1d(3, affine=False), 1, changes.OPTIMIZER)


def test_an_honest_pair_passes_by_every_way(tmp_path: Path) -> None:
    model = LINEAR.replace(
        "nn.Linear(width, 24)", "nn.Linear(width, 24); self.w = nn.Linear(24, 24)"
    )
    model = model.replace("self.fc(x)", "self.w(self.w(self.fc(x)))")
    judgement = judge_pair(tmp_path, model, SAME)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert not [name for name in WAYS if named(judgement, name).skipped]


def test_a_module_that_cannot_be_copied_is_noted(tmp_path: Path) -> None:
    new = """
    class ModelNew(Base):
        def __deepcopy__(self, memo):
            raise TypeError("it holds a handle")
    """
    judgement = judge_pair(tmp_path, LINEAR, new)
    assert failing(judgement) == set()
    check = named(judgement, "other weights, in a deep copy")
    assert check.skipped and "unsupported" in check.detail
