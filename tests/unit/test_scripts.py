"""`make demo` and `make test`, with programs of our own in the place of Python and pip."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Says whose it is and what it was called with; `-m venv` makes an environment of the same program.
PYTHON = """#!/usr/bin/env bash
bin=$(dirname "$0")
whose=machine
[[ ! -e $bin/activate ]] || whose=environment
echo "$whose: $*" >> "$LOG"
case "$*" in
  *"sys.prefix != sys.base_prefix"*) [[ $whose = machine && -z ${VIRTUAL_ENV-} ]] ;;
  *"torch.__version__"*) [[ -n ${HAS_TORCH-} ]] ;;
  *"cuda.is_available"*) echo "${ON_CPU-}" ;;
  "-m pip "*) [[ -z ${NO_NETWORK-} ]] ;;
  "-m venv "*) folder="${!#}"; mkdir -p "$folder/bin"
    cp "$0" "$folder/bin/python3"
    [[ -n ${INTERRUPTED-} ]] && exit 130
    echo "echo nobody reads this; exit 1" > "$folder/bin/activate" ;;
esac
"""
VENV = "machine: -m venv --system-site-packages "
PIN = "-c constraints.txt "
OPTIMIZE = "-m opweld optimize examples/gelu.py -o out/gelu_new.py"
PYTEST = "-m pytest -n 2 --dist worksteal --share 0"  # git knows no commit there


class Tree:
    """A copy of the scripts, and a machine with the programs above."""

    def __init__(self, folder: Path, name: str) -> None:
        self.home, self.root = folder / "home", folder / name
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        shutil.copy(ROOT / "Makefile", self.root)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "python3").write_text(PYTHON)
        (programs / "python3").chmod(0o755)
        self._log = folder / "log"
        path = f"{programs}:/usr/bin:/bin"
        self._environ = {"PATH": path, "LOG": str(self._log), "HOME": str(self.home)}

    def run(self, *command: str, ends: int = 0, **environ: str) -> list[str]:
        """What was called, in order, without the questions that are asked of Python."""
        self._log.write_text("")
        environ = {**self._environ, "ON_CPU": "--batch 1024", **environ}
        done = subprocess.run(command, cwd=self.root, env=environ, capture_output=True, text=True)
        assert done.returncode == ends, done.stderr
        return [line for line in self._log.read_text().splitlines() if " -c import" not in line]

    def demo(self, **environ: str) -> list[str]:
        return self.run("scripts/demo.sh", **environ)

    def test(self, **environ: str) -> list[str]:
        return self.run("scripts/test.sh", **environ)


@pytest.fixture(params=["clone", "a clone"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return Tree(tmp_path, request.param)


DEMO_CALLS = [
    f"environment: -m pip install {PIN}.",
    f"environment: {OPTIMIZE} --batch 1024",
]
TEST_CALLS = [f"environment: -m pip install {PIN}.[test]", f"environment: {PYTEST}"]


def test_the_first_command_makes_an_environment_and_the_second_uses_it(tree: Tree) -> None:
    made, *demo = tree.demo()
    assert made.startswith(VENV) and demo == DEMO_CALLS
    assert tree.demo() == DEMO_CALLS, "a second time"
    assert tree.test() == TEST_CALLS
    assert tree.test() == TEST_CALLS, "a second time"


def test_the_tests_may_come_first(tree: Tree) -> None:
    made, *test = tree.test()
    assert made.startswith(VENV) and test == TEST_CALLS
    assert tree.demo() == DEMO_CALLS


def test_an_environment_has_no_space_in_its_path_as_the_linker_would_not_find_torch_there(
    tree: Tree,
) -> None:
    tree.demo()
    link, place = tree.root / ".venv", (tree.root / ".venv").resolve()
    assert (place / "bin" / "activate").exists() and " " not in str(place)
    assert link.is_symlink() == (" " in tree.root.name)
    assert place.is_relative_to(tree.home if link.is_symlink() else tree.root)


def test_an_environment_that_is_active_is_used_and_a_torch_that_is_there_stays(tree: Tree) -> None:
    active = {"VIRTUAL_ENV": "/some/place", "HAS_TORCH": "1"}
    install, optimize = tree.demo(**active)
    assert install == "machine: -m pip install ." and optimize.startswith("machine: -m opweld")
    assert tree.test(**active) == ["machine: -m pip install .[test]", f"machine: {PYTEST}"]
    assert not (tree.root / ".venv").exists()


def test_a_gpu_gets_the_whole_inputs(tree: Tree) -> None:
    assert tree.demo(ON_CPU="")[-1] == f"environment: {OPTIMIZE}"


def test_an_environment_that_was_not_made_to_its_end_is_made_again(tree: Tree) -> None:
    tree.run("scripts/demo.sh", ends=130, INTERRUPTED="1")
    made, *demo = tree.demo()
    assert made.startswith(VENV) and demo == DEMO_CALLS


def test_a_clone_may_be_moved(tree: Tree) -> None:
    tree.demo()
    tree.root = tree.root.rename(tree.root.with_name("moved"))
    assert tree.demo() == DEMO_CALLS


def test_the_scripts_may_be_called_from_elsewhere(tree: Tree) -> None:
    script = str(tree.root / "scripts" / "test.sh")
    tree.root = tree.root.parent
    assert tree.run(script)[1:] == TEST_CALLS


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_runs_the_scripts(tree: Tree) -> None:
    assert tree.run("make", "demo")[1:] == DEMO_CALLS
    assert tree.run("make", "test") == TEST_CALLS


def test_a_failure_ends_the_script(tree: Tree) -> None:
    made, install = tree.run("scripts/demo.sh", ends=1, NO_NETWORK="1")
    assert made.startswith(VENV) and install == DEMO_CALLS[0]
    assert tree.run("scripts/test.sh", ends=1, NO_NETWORK="1") == TEST_CALLS[:1]
