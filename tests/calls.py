"""How many Python functions run: what grows with the ways through a graph ends in an error, not in
a test that never ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def calls_at_most(limit: int) -> Iterator[None]:
    """Raises AssertionError where more Python functions are called within."""
    count = 0

    def counting(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"
        if count > limit:
            sys.setprofile(None)
            raise AssertionError(f"more than {limit} calls")

    sys.setprofile(counting)
    try:
        yield
    finally:
        sys.setprofile(None)
