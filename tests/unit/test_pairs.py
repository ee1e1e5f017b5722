"""What `opweld check` takes for a pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from opweld.errors import UserError
from opweld.interface.pairs import Pair, pair_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.py"
    path.write_text("x = 1\n")
    return path


def test_two_files_one_file_and_two_functions(file: Path) -> None:
    other = file.with_name("other.py")
    other.write_text("x = 2\n")
    assert pair_of(file, other, None, None) == Pair(file, other)
    assert pair_of(file, None, None, None) == Pair(file, file)
    pair = pair_of(None, None, f"{file}:f", f"{other}:g")
    assert pair == Pair(file, other, "f", "g") and not pair.is_one_file
    assert list(map(str, pair.names)) == [f"{file}:f", f"{other}:g"]
    assert pair_of(None, None, f"{file}:f", f"{file}:g").is_one_file


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((None, None, None, None), "nothing to judge"),
        (("FILE", None, "FILE:f", "FILE:g"), "stand together, and alone"),
        ((None, None, "FILE:f", None), "stand together, and alone"),
        ((None, None, None, "FILE:g"), "stand together, and alone"),
        ((None, None, "FILE", "FILE:g"), "names no function"),
        ((None, None, "FILE:", "FILE:g"), "names no function"),
        ((None, None, "FILE:f()", "FILE:g"), "names no function"),
        ((None, None, "no.py:f", "FILE:g"), "no such file"),
        (("no.py", None, None, None), "no such file"),
    ],
)
def test_anything_else_is_refused(file: Path, given: tuple[str | None, ...], said: str) -> None:
    texts = [text and text.replace("FILE", str(file)) for text in given]
    model, new = (Path(text) if text else None for text in texts[:2])
    with pytest.raises(UserError, match=said):
        pair_of(model, new, *texts[2:])
