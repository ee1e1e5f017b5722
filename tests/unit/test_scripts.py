"""`make demo` and `make test`, with programs of our own in the place of Python, pip and opweld."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Says what it was called with; `-m venv` makes an environment of the same program.
PYTHON = """#!/usr/bin/env bash
echo "${0##*/tree/} $*" >> "$LOG"
case "$*" in
  *"sys.prefix != sys.base_prefix"*) [[ -z ${VIRTUAL_ENV-} ]] ;;
  *"torch.__version__"*) [[ -n ${HAS_TORCH-} ]] ;;
  *"cuda.is_available"*) echo "--batch 1024" ;;
  "-m venv "*) folder="${!#}"; mkdir -p "$folder/bin"
    cp "$0" "$folder/bin/python3"; cp "$(dirname "$0")/opweld" "$folder/bin/opweld"
    paths="PATH='$PWD/$folder/bin:$PATH'"
    echo "export VIRTUAL_ENV='$PWD/$folder' $paths" > "$folder/bin/activate" ;;
esac
"""
OPWELD = '#!/usr/bin/env bash\necho "${0##*/tree/} $*" >> "$LOG"\n'


class Tree:
    """A copy of the scripts in a folder with a space in its name."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a path" / "tree"
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        shutil.copy(ROOT / "Makefile", self.root)
        programs = folder / "bin"
        programs.mkdir()
        for name, text in (("python3", PYTHON), ("opweld", OPWELD)):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self._log = folder / "log"
        path = f"{programs}:/usr/bin:/bin"
        self._environ = {"PATH": path, "LOG": str(self._log), "HOME": str(folder)}

    def run(self, *command: str, **environ: str) -> list[str]:
        """What was called, in order, without the questions that are asked of Python."""
        self._log.write_text("")
        done = subprocess.run(
            command, cwd=self.root, env={**self._environ, **environ}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return [line for line in self._log.read_text().splitlines() if " -c import" not in line]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def calls(tree: Tree, name: str, **environ: str) -> list[str]:
    return tree.run(f"scripts/{name}.sh", **environ)


def test_the_first_command_makes_an_environment_and_the_second_uses_it(tree: Tree) -> None:
    make, *demo = calls(tree, "demo")
    assert make.endswith("python3 -m venv --system-site-packages .venv")
    install = ".venv/bin/python3 -m pip install -c constraints.txt ."
    optimize = ".venv/bin/opweld optimize examples/gelu.py -o out/gelu_new.py --batch 1024"
    assert demo == [install, optimize]
    assert calls(tree, "demo") == demo, "a second time"
    install, test = calls(tree, "test")
    assert install == ".venv/bin/python3 -m pip install -c constraints.txt .[test]"
    assert test == ".venv/bin/python3 -m pytest -n 2 --dist worksteal"


def test_the_tests_may_come_first(tree: Tree) -> None:
    assert len(calls(tree, "test")) == 3
    assert calls(tree, "demo")[0].startswith(".venv/bin/python3 -m pip install ")


def test_an_environment_that_is_active_is_used_and_a_torch_that_is_there_stays(tree: Tree) -> None:
    found = calls(tree, "demo", VIRTUAL_ENV="/some/place", HAS_TORCH="1")
    assert not (tree.root / ".venv").exists()
    assert found[0].endswith("bin/python3 -m pip install .")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_runs_the_scripts(tree: Tree) -> None:
    assert tree.run("make", "demo")[-1].startswith(".venv/bin/opweld optimize ")
    assert tree.run("make", "test")[-1].startswith(".venv/bin/python3 -m pytest ")


def test_a_failure_ends_the_script(tree: Tree) -> None:
    with pytest.raises(AssertionError):
        tree.run("scripts/demo.sh", PATH=os.devnull)
