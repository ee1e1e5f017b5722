"""Errors: one sentence with place and next step, and the way across a process border."""

import json
import pickle

import pytest

from opweld.errors import (
    CaptureError,
    JudgeFailed,
    OpweldError,
    UserError,
    Where,
    error_classes,
    from_data,
)

WHERE = Where("m.py", 4, "  return x[n]  ", "%3")


def test_sentence_has_place_and_next_step() -> None:
    error = CaptureError("the size depends on data", where=WHERE, next_step="use a mask")
    expected = "m.py:4 `return x[n]` (node %3): the size depends on data; use a mask"
    assert str(error) == expected


def test_sentence_is_one_line() -> None:
    assert str(UserError("first\n  second\tthird")) == "first second third"


@pytest.mark.parametrize("cls", error_classes())
def test_data_gives_the_error_back(cls: type[OpweldError]) -> None:
    error = cls("a sentence", where=WHERE, next_step="do this")
    for again in (
        from_data(json.loads(json.dumps(error.to_data()))),
        pickle.loads(pickle.dumps(error)),
    ):
        assert type(again) is cls
        assert (str(again), again.where, again.exit_code) == (str(error), WHERE, error.exit_code)


def test_exit_codes() -> None:
    users = {cls for cls in error_classes() if issubclass(cls, UserError)}
    assert {cls.exit_code for cls in users} == {2}
    assert JudgeFailed.exit_code == 1
    assert len(users) >= 10
