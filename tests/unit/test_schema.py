"""The JSON schemas of the accounts: what is written is what they say, and nothing else passes."""

from __future__ import annotations

import json
import math
import runpy
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.judge.test_report import JUDGEMENT, OWN

from opweld import account
from opweld.account import SCHEMA_VERSION, Account
from opweld.compiled import Compiled, PlanRow
from opweld.give_back import Decision
from opweld.judge.values import Comparison, Verdict, from_plain, to_plain
from opweld.pipeline import Delivery
from opweld.schema import schema_of

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).parents[2]
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))
MODEL, NEW = Path("m.py"), Path("m_new.py")
COMPILED = Compiled(
    "text",
    "sm_90a",
    (PlanRow("k1", "pointwise", ("tanh",), "all pointwise", flops=12),),
    library=(("sort", "no kernel for it"),),
    rules=(("mul-one", "EXACT"),),
    seconds={"plan": 0.5},
)


def delivery() -> Delivery:
    """One whose first file was slower, by a comparison with an interval that has no end."""
    slower = Comparison(1.5, 1.4, math.inf, 1e-3, 9, slower=True, sets=3)
    decisions = (Decision(("k2",), "slower", slower), Decision((), "the plan stands"))
    return Delivery(MODEL, NEW, COMPILED, JUDGEMENT, ("a note",), decisions)


def written(made: Account) -> dict[str, Any]:
    return dict(to_plain(made))


def schema(command: str) -> dict[str, Any]:
    return dict(json.loads(GENERATE["schema_file"](command).read_text("utf-8")))


def refused(data: dict[str, Any], command: str) -> bool:
    validator = jsonschema.Draft202012Validator(schema(command))
    return bool(list(validator.iter_errors(json.loads(json.dumps(data, allow_nan=False)))))


@pytest.mark.parametrize("command", GENERATE["SCHEMAS"])
def test_the_files_are_fresh_and_are_schemas(command: str) -> None:
    text = GENERATE["schema_file"](command).read_text("utf-8")
    assert text == GENERATE["schema_text"](command), "run python3 docs/generate.py"
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


def test_accounts_of_every_kind_are_valid() -> None:
    judged = written(account.of_judgement(MODEL, NEW, JUDGEMENT))
    early = replace(JUDGEMENT, verdict=Verdict(False, "F", (), "no"), timing=None, environment=None)
    delivered = written(account.of_delivery(delivery()))
    assert not refused(judged, "check")
    assert not refused(written(account.of_judgement(MODEL, NEW, early)), "check")
    assert not refused(delivered, "optimize")
    assert not refused(
        written(account.of_delivery(Delivery(MODEL, NEW, COMPILED, None))), "optimize"
    )
    assert delivered["library"] == [{"op": "sort", "reason": "no kernel for it"}]
    assert delivered["rules"] == [{"name": "mul-one", "numerics": "EXACT"}]


def test_figures_that_are_not_finite_are_valid() -> None:
    check = replace(OWN, max_ulp=math.inf, scale=math.nan)
    verdict = replace(JUDGEMENT.verdict, checks=(check,))
    data = written(account.of_judgement(MODEL, NEW, replace(JUDGEMENT, verdict=verdict)))
    assert data["verdict"]["checks"][0]["max_ulp"] == "inf"
    assert not refused(data, "check")


BREAKS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "another version": (("schema_version",), SCHEMA_VERSION + 1),
    "no verdict": (("verdict",), None),
    "no such grade": (("verdict", "grade"), "D"),
    "a word for a number": (("timing", "limit_ms"), "fast"),
    "a number for a word": (("verdict", "reason"), 3),
    "a check without its name": (("verdict", "checks", 0), {"passed": True}),
    "a float for a count": (("timing", "opweld_ms", "n"), 1.5),
    "a seed by its text": (("seed",), "7"),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_what_is_not_an_account_is_refused(broken: str) -> None:
    (*way, last), value = BREAKS[broken]
    data = written(account.of_judgement(MODEL, NEW, JUDGEMENT))
    inner: Any = data
    for step in way:
        inner = inner[step]
    assert inner[last] != value
    inner[last] = value
    assert refused(data, "check")


@pytest.mark.parametrize("name", sorted(schema("check")["required"]))
def test_every_field_is_required(name: str) -> None:
    data = written(account.of_judgement(MODEL, NEW, JUDGEMENT))
    del data[name]
    assert refused(data, "check")


def test_the_account_survives_the_way_there_and_back() -> None:
    data = written(account.of_delivery(delivery()))
    assert to_plain(from_plain(Account, json.loads(json.dumps(data)))) == data


def test_a_value_that_json_cannot_hold_has_no_schema() -> None:
    @dataclass
    class Odd:
        schema_version: int
        when: complex

    with pytest.raises(TypeError, match="no schema for"):
        schema_of(Odd, "odd", 1)


@pytest.mark.slow
def test_the_command_writes_what_the_schema_says(tmp_path: Path) -> None:
    model, new, out = (tmp_path / name for name in ("m.py", "n.py", "a.json"))
    text = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.exp(x)\ndef get_inputs():\n    return [torch.ones(4, 8)]\n"
        "def get_init_inputs():\n    return []\n"
    )
    model.write_text(text)
    new.write_text(text.replace("class Model(", "class ModelNew("))
    command = [sys.executable, "-m", "opweld", "check", str(model), str(new), "--json", str(out)]
    environ = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(out.read_text("utf-8"))
    assert not refused(data, "check") and data["verdict"]["passed"] is True
    assert set(data) == set(schema("check")["required"])
