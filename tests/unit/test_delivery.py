"""Delivery: whole files or none, and figures that change the head comment only."""

import ast
from pathlib import Path

import pytest

from opweld.delivery import (
    body_of,
    check_output,
    check_result,
    default_output,
    partial_result,
    publish,
    with_figures,
    write_whole,
)
from opweld.errors import InternalError, OutputNotWritable

EMITTED = '''"""ModelNew for gelu.py, für sm_90a.

One kernel.
"""
x = """not the head"""
'''


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_default_output() -> None:
    assert default_output(Path("a/gelu.py")) == Path("a/gelu_new.py")


@pytest.mark.parametrize("failure", [None, KeyboardInterrupt, ValueError])
def test_nothing_stays_of_a_partial_file(tmp_path: Path, failure: type | None) -> None:
    out = tmp_path / "new.py"
    try:
        with partial_result(out, "text") as partial:
            assert partial.read_text() == "text" and partial.suffix == ".py"
            assert not out.exists()
            if failure:
                raise failure
    except (KeyboardInterrupt, ValueError):
        assert failure
    assert files(tmp_path) == []


def test_publish_replaces_in_one_step(tmp_path: Path) -> None:
    out = tmp_path / "new.py"
    out.write_text("old")
    with partial_result(out, "new") as partial:
        publish(partial, out)
    assert out.read_text() == "new"
    assert files(tmp_path) == ["new.py"]
    assert out.stat().st_mode & 0o044 == 0o044 or out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("", "is a folder with other things in it; name a new folder, or a file that ends in .py"),
        (
            "my-net",
            "is no name that Python can import; "
            "name a package in letters, digits and _, or a file that ends in .py",
        ),
        ("model.py", "is the model file itself; name another file with -o"),
        ("model.py/new.py", "is inside a file; name another place"),
        ("model.py/no/new.py", "is inside a file; name another place"),
    ],
)
def test_outputs_that_are_refused(tmp_path: Path, out: str, says: str) -> None:
    model = tmp_path / "model.py"
    model.write_text("")
    with pytest.raises(OutputNotWritable) as caught:
        check_result(tmp_path / out, model)
    assert str(caught.value) == f"{tmp_path / out}: {says}"
    assert files(tmp_path) == ["model.py"]


def test_folders_are_made_and_stay_only_with_the_file(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b" / "new.py"
    check_output(out)
    with partial_result(out, "text") as partial:
        assert partial.parent == out.parent
    assert files(tmp_path) == []
    write_whole(out, "text")
    assert out.read_text() == "text" and files(out.parent) == ["new.py"]


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    check_output(tmp_path / "a" / "b" / "new.py")
    assert files(tmp_path) == ["a"] and files(tmp_path / "a") == []


def test_a_file_system_that_refuses(tmp_path: Path) -> None:
    with pytest.raises(OutputNotWritable, match="cannot be written: "):
        write_whole(Path("/proc/opweld_new.py"), "text")


def test_figures_go_into_the_head_and_nowhere_else() -> None:
    text = with_figures(EMITTED, 'On a "big" machine: 3 ms.')
    head = ast.get_docstring(ast.parse(text), clean=False)
    assert head == "ModelNew for gelu.py, für sm_90a.\n\nOne kernel.\n\nOn a 'big' machine: 3 ms.\n"
    assert body_of(text) == body_of(EMITTED) == '\nx = """not the head"""\n'


def test_a_head_on_one_line() -> None:
    text = with_figures('# comment\n"""ModelNew."""\nx = 1\n', "3 ms.")
    assert text == '# comment\n"""ModelNew.\n\n3 ms.\n"""\nx = 1\n'


def test_a_file_without_a_head_is_refused() -> None:
    with pytest.raises(InternalError, match="has no head comment"):
        with_figures("x = 1\n", "3 ms.")


def test_a_file_of_another_use_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputNotWritable, match="is a folder; name a file"):
        check_output(tmp_path)
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["gelu.d", "gelu.txt", "gelu_new.pyc"])
def test_a_result_has_a_name_that_python_imports(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputNotWritable, match=r"name a file that ends in \.py, or a package"):
        check_result(tmp_path / name)
    assert files(tmp_path) == []


def test_a_package_is_written_whole_and_replaced_whole(tmp_path: Path) -> None:
    out = tmp_path / "gelu_new"
    for text in (EMITTED, EMITTED.replace("One", "Two")):
        check_result(out)
        with partial_result(out, text) as partial:
            assert partial.parent == out.parent and files(partial) == ["__init__.py"]
            (partial / "__pycache__").mkdir()
            publish(partial, out)
        assert files(tmp_path) == ["gelu_new"] and files(out) == ["__init__.py"]
        assert (out / "__init__.py").read_text("utf-8") == text


def test_a_package_that_was_changed_by_hand_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "gelu_new"
    with partial_result(out, EMITTED) as partial:
        publish(partial, out)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(OutputNotWritable, match="is a folder with other things in it"):
        check_result(out)
    assert files(out) == ["__init__.py", "notes.txt"]


def test_nothing_stays_of_a_partial_package(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), partial_result(tmp_path / "a" / "net", EMITTED):
        raise KeyboardInterrupt
    assert files(tmp_path) == []
