"""What is said of an export that ends in an error."""

from __future__ import annotations

import pytest

from opweld.capture.exporting.explained import explained
from opweld.errors import CaptureError, OriginalKept


def raised_in(module: str, error: Exception) -> Exception:
    """The error as it comes out of a function of a module of this name."""
    place = {"__name__": module, "error": error}
    exec("def fails():\n    raise error", place)
    with pytest.raises(type(error)) as found:
        place["fails"]()
    return found.value


def test_an_object_that_no_graph_holds_leaves_the_original() -> None:
    error = NotImplementedError("argument of type: <class 'torch._C.Generator'>")
    found = explained(raised_in("torch.fx.proxy", error))
    assert isinstance(found, OriginalKept)
    assert found.sentence == "the forward uses an object that no graph holds, a Generator"


@pytest.mark.parametrize("module", ["torch.fx.experimental.symbolic_shapes", "torch.export._trace"])
def test_what_traces_a_forward_is_not_the_forward(module: str) -> None:
    error = raised_in(module, AssertionError("Expected FakeTensor, got <class 'torch.Tensor'>"))
    assert explained(error).sentence == (
        "the forward cannot be captured: Expected FakeTensor, got <class 'torch.Tensor'>"
    )


@pytest.mark.parametrize("module", ["model", "torch.nn.functional", "torch.fxy"])
def test_an_error_of_the_forward_itself(module: str) -> None:
    found = explained(raised_in(module, ValueError("\n  too few rows\nof x")))
    assert found.sentence == "the forward raises ValueError: too few rows"


def test_a_sentence_of_its_own_stays() -> None:
    error = CaptureError("the forward draws", next_step="do not")
    found = explained(raised_in("model", error))
    assert type(found) is CaptureError and found.sentence == error.sentence
    assert found.next_step == "do not"


def test_an_error_without_a_word_has_its_name() -> None:
    assert explained(KeyError()).sentence == "the forward raises KeyError: KeyError"
