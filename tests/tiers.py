"""Which tier of the tests a file belongs to, computed from what it imports: no list to keep.

- `unit`: pure Python. Nothing that the file imports, directly or through other files of ours,
  imports torch, and no test among them what starts a process: no export, no compiler, no child.
- `device`: what needs a CUDA device; all tests that are marked `gpu`.
- `compile`: the others. They export models, compile kernels, or run the command line.

`python3 -m pytest --tier unit` imports no file of another tier, and refuses torch and processes.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

TIERS = ("unit", "compile", "device")
ROOT = Path(__file__).resolve().parents[1]
# Tests that import one of these run compilers or other programs (the pipeline asks for versions);
# opweld's own files may import them for others' sake.
STARTS_PROCESSES = frozenset(
    {
        "multiprocessing",
        "opweld.process.builder",
        "opweld.process.child",
        "opweld.interface.doctor",
        "opweld.pipeline",
        "opweld.process.worker",
        "subprocess",
    }
)
PACKAGES = {
    "tests": ROOT / "tests",
    "benchmarks": ROOT / "benchmarks",
    "opweld": ROOT / "src" / "opweld",
}


def is_unit(path: Path) -> bool:
    """Whether nothing that the test file imports, over any number of files, is of another tier."""
    seen: set[Path] = set()
    waiting = [path.resolve()]
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        names = imported(file)
        if any(name.split(".")[0] == "torch" for name in names):
            return False
        if not file.is_relative_to(PACKAGES["opweld"]) and names & STARTS_PROCESSES:
            return False
        waiting += [found for name in names for found in files_of(name)]
    return True


@functools.cache
def imported(file: Path) -> frozenset[str]:
    """The modules that a file names in its imports, those of `from a import b` as a and a.b.

    In tests, imports inside functions count: the test runs them. In opweld they are made for
    somebody who asks for more, as `opweld.optimize` is.
    """
    tree = ast.parse(file.read_text("utf-8"))
    own = file.is_relative_to(PACKAGES["opweld"])
    nodes = iter(tree.body) if own else ast.walk(tree)
    return frozenset(name for node in nodes for name in _names(file, node))


def _names(file: Path, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = _package(file, node.level) if node.level else []
        module = ".".join([*package, *([node.module] if node.module else [])])
        yield module
        yield from (f"{module}.{alias.name}" for alias in node.names)


def _package(file: Path, level: int) -> list[str]:
    for name, folder in PACKAGES.items():
        if file.is_relative_to(folder):
            parts = [name, *file.relative_to(folder).parts[:-1]]
            return parts[: len(parts) - level + 1]
    return []


@functools.cache
def files_of(name: str) -> tuple[Path, ...]:
    """The files of ours that importing `name` runs: its own, and its packages' `__init__`."""
    first, *rest = name.split(".")
    if first not in PACKAGES:
        return ()
    folders = [PACKAGES[first].joinpath(*rest[:count]) for count in range(len(rest) + 1)]
    own = folders[-1].with_suffix(".py")
    return tuple(file for file in (*(f / "__init__.py" for f in folders), own) if file.is_file())
