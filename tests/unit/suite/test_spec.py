"""What a suite is to do: folders, globs, rows, iterables, and the sentences for what is wrong."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from opweld.errors import UserError
from opweld.suite.spec import digests_of, key_of, read_spec, units_of
from opweld.suite.values import Unit

MODEL = "class Model:\n    pass\n"
needs_pyarrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None,
    reason="pyarrow is not installed: pip install 'opweld[parquet]'",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.py", "a_new.py", "deep/b.py", "deep/b_new/__init__.py", "c.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(MODEL)
    (tmp_path / "helper.py").write_text("# no class Model here\nx = 'class Model'\n")
    (tmp_path / "bound.py").write_text("from deep.b import Model\n")
    return tmp_path


def named(spec: str, do: str) -> list[tuple[str, str]]:
    found = read_spec(spec, do)
    units = list(found.units)
    assert found.total == len(units)
    return [(unit.name, unit.new) for unit in units]


def test_a_folder_of_pairs(folder: Path) -> None:
    new = [str(folder / "a_new.py"), str(folder / "deep/b_new")]
    assert named(str(folder), "check") == [("a.py", new[0]), ("deep/b.py", new[1])]


def test_a_folder_of_models(folder: Path) -> None:
    names = [name for name, _ in named(str(folder), "optimize")]
    assert names == ["a.py", "bound.py", "c.py", "deep/b.py", "deep/b_new/__init__.py"]


def test_a_glob(folder: Path) -> None:
    assert [name for name, _ in named(f"{folder}/*.py", "tune")] == ["a.py", "bound.py", "c.py"]
    assert [name for name, _ in named(f"{folder}/**/b*.py", "check")] == ["deep/b.py"]


def test_one_file(folder: Path) -> None:
    assert named(str(folder / "c.py"), "optimize") == [("c.py", "")]


def rows(folder: Path, *given: Any) -> str:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n\n" for row in given))
    return str(path)


def test_json_lines_are_relative_to_their_file(folder: Path) -> None:
    text = rows(
        folder,
        {"model": "a.py", "new": "a_new.py", "gpu": "H200", "gpu_memory_gb": 40},
        {"model": "c.py", "name": "mine"},
    )
    first, second = read_spec(text, "check").units
    assert first.name == "a.py a_new.py" and first.model == str(folder / "a.py")
    assert (first.gpu, first.gpu_memory_gb) == ("H200", 40)
    assert (second.name, second.new) == ("mine", "")


@needs_pyarrow
def test_parquet_has_the_same_fields(folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    given = [{"model": "a.py", "new": "a_new.py"}, {"model": "c.py", "new": None}]
    path = folder / "pairs.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(given), path)
    assert [unit.new for unit in read_spec(str(path), "check").units] == [
        str(folder / "a_new.py"),
        "",
    ]
    path.write_bytes(b"no table")
    with pytest.raises(UserError, match="is no Parquet file"):
        read_spec(str(path), "check")


def test_parquet_without_pyarrow_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (folder / "pairs.parquet").touch()
    with pytest.raises(UserError, match=r"needs pyarrow.*pip install 'opweld\[parquet\]'"):
        read_spec(str(folder / "pairs.parquet"), "check")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"new": "a_new.py"}, r"pairs.jsonl: line 3: there is no \"model\""),
        ({"model": 3}, 'line 3: there is no "model"'),
        ({"model": "a.py", "nw": "b.py"}, "line 3: there is no field 'nw'"),
        ({"model": "a.py", "new": 3}, "line 3: new is 3; give a str"),
        ({"model": "a.py", "gpu_memory_gb": True}, "line 3: gpu_memory_gb is True"),
        (["a.py"], 'line 3: there is no "model"'),
    ],
)
def test_a_wrong_row_is_found_before_anything_is_done(folder: Path, row: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_spec(rows(folder, {"model": "a.py"}, row), "check")


def test_a_line_that_is_no_json(folder: Path) -> None:
    (folder / "x.jsonl").write_text('{"model": "a.py"}\n{model: 3}\n')
    with pytest.raises(UserError, match="x.jsonl: line 2 is no JSON"):
        read_spec(str(folder / "x.jsonl"), "check")


def test_text_that_is_not_utf8(folder: Path) -> None:
    (folder / "x.jsonl").write_bytes(b'{"model": "a.py"}\n{"model": "caf\xe9.py"}\n')
    with pytest.raises(UserError, match="x.jsonl: line 2 is no JSON: .*can't decode"):
        read_spec(str(folder / "x.jsonl"), "check")


def test_what_is_called_like_a_model_and_is_no_file(folder: Path) -> None:
    (folder / "gone.py").symlink_to("nowhere.py")
    (folder / "d.py").mkdir()
    (folder / "d_new.py").write_text(MODEL)
    for do, names in (("tune", ["a.py", "bound.py", "c.py"]), ("check", ["a.py"])):
        assert [name for name, _ in named(f"{folder}/*.py", do)] == names
    assert "gone.py" not in [name for name, _ in named(str(folder), "optimize")]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("none", "no such file or folder"),
        ("a.txt", "is nothing that a suite can be"),
        ("empty", "there is no pair, X.py with X_new.py beside it"),
        ("*.nothing", "there is no pair"),
        ("rows.jsonl", "has no rows"),
    ],
)
def test_a_suite_of_nothing(tmp_path: Path, spec: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").touch()
    (tmp_path / "rows.jsonl").touch()
    with pytest.raises(UserError, match=said):
        read_spec(str(tmp_path / spec), "check")


def test_an_iterable_is_taken_from_as_it_is_asked() -> None:
    taken = []

    def endless() -> Any:
        while True:
            taken.append(len(taken))
            yield (f"{len(taken)}.py", Path("new.py"))

    spec = units_of(endless(), "check")
    assert spec.total is None and not taken
    assert next(spec.units) == Unit("1.py new.py", "1.py", "new.py")
    assert len(taken) == 1
    units = units_of(["x.py", Path("y.py"), {"model": "z.py"}, Unit("u", "u.py")], "tune")
    assert units.total == 4
    assert [unit.name for unit in units.units] == ["x.py", "y.py", "z.py", "u"]


def test_a_key_follows_name_content_functions_and_work(folder: Path) -> None:
    unit = Unit("a", str(folder / "a.py"), str(folder / "deep/b_new"))
    keys = {key_of(unit, digests_of(unit), "work")}
    assert key_of(unit, digests_of(unit), "work") in keys
    for other in (Unit("b", unit.model, unit.new), Unit("a", unit.model, unit.new, "f", "g")):
        keys.add(key_of(other, digests_of(other), "work"))
    keys.add(key_of(unit, digests_of(unit), "other work"))
    (folder / "deep/b_new/kernels.cu").write_text("void k();")
    keys.add(key_of(unit, digests_of(unit), "work"))
    assert len(keys) == 5
    moved = Unit("a", str(folder / "c.py"), unit.new)
    assert key_of(moved, digests_of(moved), "work") in keys, "the content counts, not the path"
