"""Shares of the tests that take long: each in one of them, by a list that names tests there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import sampled
from tests.sampled import SHARES, is_left_out, node_id_of, shared_out

LONG = "tests/emulation/test_contract.py::test_a_fault_in_a_kernel_shows"


@pytest.mark.parametrize("name", [f"{LONG}[the edge of k]", LONG])
def test_each_test_that_takes_long_is_in_one_share(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled, "sampled", lambda: {LONG: 3})
    kept = [share for share in range(2 * SHARES) if not is_left_out(name, share)]
    assert kept == [3, 3 + SHARES]


def test_other_tests_are_in_all_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "sampled", lambda: {LONG: 3})
    assert not any(is_left_out(f"{LONG}_too[1]", share) for share in range(SHARES))


def test_shares_take_as_long_and_have_whole_files() -> None:
    seconds = {f"tests/test_{i}.py::test_{j}": 1.0 + i for i in range(60) for j in range(3)}
    shares = shared_out(seconds)
    took = [sum(s for name, s in seconds.items() if shares[name] == i) for i in range(SHARES)]
    assert max(took) <= 1.1 * min(took)
    files = {(name.partition("::")[0], share) for name, share in shares.items()}
    assert len(files) == 60


def test_the_list_names_tests_that_there_are() -> None:
    texts: dict[str, str] = {}
    for function in sampled.sampled():
        path, *_, name = function.split("::")
        text = texts.setdefault(path, (sampled.ROOT / path).read_text("utf-8"))
        assert re.search(rf"\b{name}\b", text), function


LOG = """<testsuites><testsuite>
<testcase classname="tests.emulation.test_contract" name="test_a[0-1.5]" time="0.75"/>
<testcase classname="tests.emulation.test_contract" name="test_a[1]" time="0.5"/>
<testcase classname="tests.emulation.test_contract" name="test_b" time="0.75"/>
<testcase classname="tests.emulation.test_contract.TestClass" name="test_c" time="2"/>
<testcase classname="tests.unit.test_sampled" name="test_of_the_unit_tier" time="3"/>
</testsuite></testsuites>"""


def test_the_list_is_written_from_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, written = tmp_path / "all.xml", tmp_path / "sampled.txt"
    log.write_text(LOG, "utf-8")
    monkeypatch.setattr(sampled, "LIST", written)
    sampled.main(log)
    path = "tests/emulation/test_contract.py"
    assert written.read_text("utf-8").splitlines()[1:] == [
        f"0 {path}::TestClass::test_c",
        f"0 {path}::test_a",
    ]


def test_a_log_of_other_tests_is_refused() -> None:
    with pytest.raises(SystemExit, match="gone: no such file of tests"):
        node_id_of("tests.unit.gone", "test_a")
