"""Shared by the tests that need a device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def gives_memory_back() -> Iterator[None]:
    """Test processes side by side share the device's memory: none keeps what its test has freed."""
    yield
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
