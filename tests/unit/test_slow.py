"""The list of slow tests names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.conftest import slow_patterns

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("pattern", slow_patterns())
def test_what_is_slow_is_there(pattern: str) -> None:
    path, _, name = pattern.partition("::")
    text = (ROOT / path).read_text("utf-8")
    (function,) = re.findall(r"^\w*", name)
    assert not function or f"def {function}(" in text or f"def {function}" in text and "*" in name
