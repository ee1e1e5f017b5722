"""Building an emitted file in a process of its own: what the file may import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from opweld.errors import BuildFailed
from opweld.options import Options
from opweld.process.builder import COMMAND, NO_KERNELS, build_in_child
from opweld.process.worker import child_environment

FILE = "import warnings\nfrom {name} import VALUE\nwarnings.warn(f'{said}{{VALUE}}')\n"


def test_a_file_finds_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "beside_the_file.py").write_text("VALUE = 'as told'\n")
    new = tmp_path / "m_new.py"
    new.write_text(FILE.format(name="beside_the_file", said=NO_KERNELS))
    with pytest.raises(BuildFailed, match="the kernels cannot be built: as told"):
        build_in_child(new, tmp_path / "m.py", "cpu", Options())


def test_a_file_finds_what_stands_in_a_folder_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "beside_the_model.py").write_text("VALUE = 'as told'\n")
    new, answer = tmp_path / "m_new.py", tmp_path / "answer.json"
    new.write_text(FILE.format(name="beside_the_model", said=NO_KERNELS))
    command = [*COMMAND, str(new), str(answer)]
    for folders, status in (((), 1), ((str(tmp_path / "model"),), 0)):
        done = subprocess.run(
            [*command, *folders], env=child_environment(), capture_output=True, timeout=300
        )
        assert done.returncode == status, done.stderr
    assert json.loads(answer.read_text())["problem"] == "as told"
    assert sys.modules.get("beside_the_model") is None
