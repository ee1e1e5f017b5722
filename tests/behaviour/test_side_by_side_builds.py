"""Builds of the device's tests, which one process begins for all: what they leave, and failures."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.gpu.building import made_side_by_side


def made(text: str, directory: Path) -> bytes:
    assert directory.is_dir()
    if not text:
        raise ValueError("nothing to make")
    return text.encode()


def test_one_begins_them_and_all_get_what_they_leave(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    jobs = {name: partial(made, name) for name in ("one", "two words")}
    key = str(tmp_path_factory.mktemp("key"))
    with made_side_by_side(key, jobs, tmp_path_factory) as first:
        with made_side_by_side(key, {}, tmp_path_factory) as second:  # of another worker
            assert second.directory == first.directory
            assert [left(name) for left in (second, first) for name in jobs] == 2 * [
                b"one",
                b"two words",
            ]


def test_whoever_asks_gets_the_failure(tmp_path_factory: pytest.TempPathFactory) -> None:
    with made_side_by_side("failing", {"none": partial(made, "")}, tmp_path_factory) as left:
        with pytest.raises(AssertionError, match="ValueError: nothing to make"):
            left("none")
