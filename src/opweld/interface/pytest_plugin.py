"""The pytest plugin: a fixture that judges one function against another.

    def test_softmax(assert_equivalent):
        assert_equivalent(torch.softmax, my_softmax, lambda: [torch.randn(64, 128), -1])

The same function is `opweld.assert_equivalent`; the fixture adds the options `--opweld-seed` and
`--opweld-scope`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import opweld


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("opweld")
    group.addoption("--opweld-seed", type=int, help="Seed of what the judge draws.")
    group.addoption(
        "--opweld-scope",
        choices=("call", "full"),
        help="What a candidate must do: call, as the example call, or full, as the reference.",
    )


@pytest.fixture
def assert_equivalent(pytestconfig: pytest.Config) -> Callable[..., Any]:
    """`opweld.assert_equivalent`, with what the command line chose in the place of defaults."""
    given = {name: pytestconfig.getoption(f"--opweld-{name}") for name in ("seed", "scope")}
    chosen = {name: value for name, value in given.items() if value is not None}

    def judged(reference: Any, candidate: Any, inputs: Any, **settings: Any) -> Any:
        __tracebackhide__ = True
        return opweld.assert_equivalent(reference, candidate, inputs, **{**chosen, **settings})

    return judged
