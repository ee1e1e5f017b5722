"""Shared by the tests of suites: one Ray cluster for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.suite.clusters import cluster


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[tuple[str, int]]:
    with cluster() as found:
        yield found


@pytest.fixture
def ray_address(ray_cluster: tuple[str, int]) -> str:
    return ray_cluster[0]
