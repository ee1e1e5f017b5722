"""Tests run over the models of `examples/`, whatever a user has written beside them."""

from __future__ import annotations

from pathlib import Path

from tests.examples import EXAMPLES, example_names

from opweld.delivery import default_output


def test_results_are_no_examples(tmp_path: Path) -> None:
    (tmp_path / "gelu.py").write_text("")
    default_output(tmp_path / "gelu.py").write_text("raise ImportError")
    assert example_names(tmp_path) == ("gelu",)


def test_the_examples_are_there() -> None:
    assert {"gelu", "linear_relu", "relu"} <= set(example_names(EXAMPLES))
