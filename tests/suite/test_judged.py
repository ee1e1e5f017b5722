"""Suites of real pairs and models: judged, optimized and tuned as by the single commands."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.judge.pairs import HEAD, POINTWISE, SAME
from tests.suite.stores import results

import opweld
from opweld.judge.build.locks import BUILDS
from opweld.options import Options
from opweld.suite.asking import of_check, of_optimize, of_tune
from opweld.suite.engines.named import Where
from opweld.suite.run import run_suite
from opweld.tune.values import Search

QUICK = opweld.Settings(device="cpu", measure=False, seed=1)
CPU = Where(device="cpu", jobs=2)
WRONG = "class ModelNew(Base):\n    def forward(self, x):\n        return super().forward(x) + 1\n"
ABORTS = "import os\nclass ModelNew(Base):\n    def forward(self, x):\n        os.abort()\n"
# Each finds its folder for builds, and the caches beside it, as if nobody had been there.
LOOKS = f"""
import os
from pathlib import Path
FOLDERS = [Path(os.environ[name]) for name in ({BUILDS!r}, "TRITON_CACHE_DIR")]
for folder in FOLDERS:
    folder.mkdir(parents=True, exist_ok=True)
    assert not list(folder.iterdir()), folder
    (folder / "left").write_text("by another")
class ModelNew(Base):
    pass
"""
BUILT = f"""
import os
from pathlib import Path
FOLDER = Path(os.environ[{BUILDS!r}])
assert (FOLDER / "built").exists() or not os.access(FOLDER, os.F_OK) or not list(FOLDER.iterdir())
FOUND = (FOLDER / "built").exists()
(FOLDER / "built").write_text("by an earlier import")
with open(NOTES, "a") as notes:
    notes.write(f"{{FOUND}} {{os.environ['CUDA_VISIBLE_DEVICES']!r}}\\n")
class ModelNew(Base):
    pass
"""


def pair(folder: Path, name: str, new: str, model: str = POINTWISE) -> None:
    (folder / f"{name}.py").write_text(HEAD + model)
    base = model.replace("class Model(", "class Base(")
    (folder / f"{name}_new.py").write_text(HEAD + base + new)


def test_pairs_are_judged_as_by_check(tmp_path: Path) -> None:
    pairs, store = tmp_path / "pairs", tmp_path / "s.sqlite"
    pairs.mkdir()
    for name, new in (("looks", LOOKS), ("same", LOOKS), ("wrong", WRONG), ("aborts", ABORTS)):
        pair(pairs, name, new)
    pair(pairs, "lame", SAME, POINTWISE.replace("class Model(", "class Other("))
    progress = run_suite(pairs, of_check(QUICK), store, where=replace(CPU, jobs=1))
    assert progress.ended == 5 and not progress.all_passed
    found = {row["name"]: row for row in results(store)}
    verdicts = {name: (row["verdict"], row["cause"]) for name, row in found.items()}
    assert verdicts == {
        "same.py": ("passed", ""),
        "looks.py": ("passed", ""),
        "wrong.py": ("failed", "own inputs"),
        "aborts.py": ("crashed", "crashed"),
        "lame.py": ("refused", "ModelFileError"),
    }, [row["reason"] for row in found.values()]
    same = found["same.py"]
    account = json.loads(same["account"])
    assert account["verdict"]["passed"] and account["verdict"]["reason"] == same["reason"]
    assert (same["seed"], same["grade"]) == (1, "A")
    assert json.loads(same["versions"])["torch"] == account["environment"]["torch"]
    assert len(json.loads(same["digests"])["new"]) == 64
    again = run_suite(pairs, of_check(QUICK), store, where=CPU)
    assert (again.ended, again.kept, again.all_passed) == (0, 5, False)
    assert not list(tmp_path.glob("*.work"))


def test_a_candidate_is_built_ahead_by_another_process(tmp_path: Path) -> None:
    pairs, notes = tmp_path / "pairs", tmp_path / "notes"
    pairs.mkdir()
    pair(pairs, "a", BUILT.replace("NOTES", repr(str(notes))))
    work = of_check(replace(QUICK, sandbox="off"), builds_ahead=True)
    where = replace(CPU, jobs=1, builders=1)
    progress = run_suite(pairs, work, tmp_path / "s.sqlite", where=where)
    assert progress.all_passed, results(tmp_path / "s.sqlite")
    told = notes.read_text().splitlines()
    assert told == ["False ''", "True ''"], "once by the builder, once where it is judged"
    assert results(tmp_path / "s.sqlite")[0]["build_seconds"] > 0


def test_models_are_compiled_and_their_files_published(tmp_path: Path) -> None:
    model, out = tmp_path / "m.py", tmp_path / "out"
    model.write_text(HEAD + POINTWISE)
    work = of_optimize(Options(target="cpu", check=False))
    progress = run_suite([model], work, tmp_path / "s.sqlite", where=CPU, output=out)
    (file,) = out.iterdir()
    assert progress.all_passed and "not verified" in file.read_text().lower()
    (row,) = results(tmp_path / "s.sqlite")
    assert row["new"] == str(file) and row["calibration"] is None


@pytest.mark.parametrize("ahead", [False, True])
def test_models_are_optimized_and_their_files_published(tmp_path: Path, ahead: bool) -> None:
    model, out = tmp_path / "m.py", tmp_path / "out"
    model.write_text(HEAD + POINTWISE)
    work = of_optimize(Options(target="cpu", baselines="eager", time_limit_s=300), ahead)
    where = replace(CPU, jobs=None, builders=1)
    progress = run_suite([model], work, tmp_path / "s.sqlite", where=where, output=out)
    (row,) = results(tmp_path / "s.sqlite")
    assert progress.all_passed, row
    (file,) = out.iterdir()
    assert row["new"] == str(file) and "class ModelNew" in file.read_text()
    assert os.access(file, os.W_OK), "it is the user's"
    account = json.loads(row["account"])
    assert account["model_new"] == str(file) and account["plan"]
    assert row["eager_ms"] > 0 and row["opweld_ms"] > 0 and row["ratio"] > 0
    assert row["calibration"] == 1 and not model.with_name("m_new.py").exists()
    assert (row["build_seconds"] > 0) == ahead
    judged = opweld.check(model, file, QUICK)
    assert judged.verdict.passed


def test_models_are_tuned(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(HEAD + POINTWISE)
    work = of_tune(Options(target="cpu", check=False, time_limit_s=60), Search(limit_s=60))
    run_suite([tmp_path / "m.py"], work, tmp_path / "s.sqlite", where=Where(device="cpu"))
    (row,) = results(tmp_path / "s.sqlite")
    assert row["verdict"] == "passed", row
    assert json.loads(row["account"])["outcomes"] is not None
