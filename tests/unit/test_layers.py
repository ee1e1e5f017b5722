"""The layers, by the imports that stand in the sources: who may import whom, and the names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "opweld"
STAGES = (
    "simplify", "differentiate", "plan", "lower", "render", "emit", "emission", "capture"
)  # fmt: skip
PURE = ("ir", *STAGES[:-1], "target")
# What a pure file may import beside ours: nothing that reads a clock, a file, or chance.
PURE_LIBRARIES = {
    "__future__", "abc", "ast", "bisect", "collections", "contextlib", "dataclasses", "enum",
    "fractions", "functools", "hashlib", "heapq", "inspect", "itertools", "keyword", "math",
    "networkx", "numpy", "operator", "re", "string", "struct", "textwrap", "types", "typing",
}  # fmt: skip
# Text that is a resource of the package (device headers) may be read once.
PURE_EXCEPTIONS = {("render", "importlib"), ("emit", "importlib"), ("emission", "importlib")}
BANNED = ("utils", "helpers", "common", "misc", "manager", "handler", "processor", "base")
MAX_FILE_LINES, MAX_FUNCTION_LINES = 450, 60
MAX_FILES = 20
FILES = sorted(path for path in ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    """`simplify/views.py` is `simplify.views`; a package is named by its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Each module that the file imports, absolute, and whether inside a function."""
    return tuple(_imports(path, ast.parse(path.read_text("utf-8"))))


def _imports(path: Path, tree: ast.Module) -> Iterator[tuple[str, bool]]:
    outer = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) not in outer) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield from ((name, id(node) not in outer) for name in from_modules(path, node))


def from_modules(path: Path, node: ast.ImportFrom) -> list[str]:
    package = ["opweld", *path.relative_to(ROOT).parts[:-1]]
    start = package[: len(package) - node.level + 1] if node.level else []
    module = ".".join([*start, *([node.module] if node.module else [])])
    if module == "opweld":
        return [f"opweld.{alias.name}" for alias in node.names]
    return [module]


def ours(path: Path) -> set[str]:
    """The top-level parts of opweld that the file imports."""
    named = {name for name, _ in imports(path) if name.startswith("opweld.")}
    return {name.split(".")[1] for name in named}


def part_of(path: Path) -> str:
    return name_of(path).split(".")[0]


def parts(*names: str) -> list[Path]:
    return [path for path in FILES if part_of(path) in names]


ids = pytest.mark.parametrize("path", FILES, ids=name_of)


@pytest.mark.parametrize("path", parts("ir"), ids=name_of)
def test_ir_imports_nothing_of_ours(path: Path) -> None:
    assert ours(path) <= {"ir"}


@pytest.mark.parametrize("path", parts(*STAGES), ids=name_of)
def test_no_stage_imports_another(path: Path) -> None:
    allowed = {part_of(path)} | ({"emission"} if part_of(path) == "emit" else set())
    assert ours(path) & set(STAGES) <= allowed


@pytest.mark.parametrize("path", parts(*PURE), ids=name_of)
def test_pure_files_import_no_torch_and_no_io(path: Path) -> None:
    libraries = {name.split(".")[0] for name, _ in imports(path) if not name.startswith("opweld")}
    excused = {name for part, name in PURE_EXCEPTIONS if part == part_of(path)}
    assert libraries <= PURE_LIBRARIES | excused


@pytest.mark.parametrize("path", parts(*PURE), ids=name_of)
def test_pure_files_open_nothing_and_print_nothing(path: Path) -> None:
    called = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"open", "print", "input", "exec", "eval", "id", "hash"}


def test_the_driver_alone_imports_all_stages() -> None:
    importers = {part_of(path) for path in FILES if len(ours(path) & set(STAGES)) > 1}
    assert importers - {"emit"} <= {"driver"}


@pytest.mark.parametrize("path", [p for p in FILES if part_of(p) != "judge"], ids=name_of)
def test_only_who_must_imports_torch(path: Path) -> None:
    names = {name.split(".")[0] for name, _ in imports(path)}
    who = ("capture", "driver", "inputs", "api", "tune", "dynamo")
    assert "torch" not in names or part_of(path) in who or name_of(path) == "interface.held"


@ids
def test_imports_stand_at_the_top(path: Path) -> None:
    inner = {name for name, inside in imports(path) if inside}
    public = {"opweld.api", "opweld.judge", "opweld.judge.batch", "opweld.judge.functions"}
    public |= {"opweld.errors", "opweld.dynamo.backend"}
    main = {"opweld.interface"}  # behind a look at the platform
    allowed = {"process.worker": {"opweld.driver"}, "__main__": main, "": public}.get(
        name_of(path), set()
    )
    assert {name for name in inner if name.startswith("opweld")} <= allowed


@ids
def test_names_say_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    classes = [node.name.lower() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    words = [part.strip("_") for part in path.relative_to(ROOT).with_suffix("").parts]
    for name in (*words, *classes):
        assert not any(name == banned or name.endswith(banned) for banned in BANNED), name


def test_no_folder_has_more_files_than_one_looks_through() -> None:
    folders = [ROOT, *(path for path in ROOT.rglob("*") if path.is_dir())]
    counts = {str(f): sum(p.is_file() for p in f.iterdir()) for f in folders}
    assert not {name: count for name, count in counts.items()
                if count > MAX_FILES and "__pycache__" not in name}  # fmt: skip


@ids
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= MAX_FILE_LINES
    long = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not long


def test_the_import_graph_has_no_cycle() -> None:
    graph = {name_of(path): set() for path in FILES}
    for path in FILES:
        for name, inside in imports(path):
            target = name.removeprefix("opweld.")
            while target and target not in graph:
                target = target.rpartition(".")[0]
            if name.startswith("opweld.") and target and not inside and target != name_of(path):
                graph[name_of(path)].add(target)
    sys.setrecursionlimit(10_000)
    done: dict[str, bool] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert done.get(name, True), " -> ".join([*trail, name])
        if name not in done:
            done[name] = False
            for each in sorted(graph[name]):
                visit(each, (*trail, name))
            done[name] = True

    for name in sorted(graph):
        visit(name, ())


def test_the_command_line_starts_without_torch() -> None:
    """Every file that `opweld --help` loads, followed through the imports."""
    seen: set[str] = set()
    todo = ["interface.cli"]
    by_name = {name_of(path): path for path in FILES}
    while todo:
        name = todo.pop()
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        for imported in (each for each, inside in imports(by_name[name]) if not inside):
            assert imported.split(".")[0] != "torch", f"{name} imports torch"
            target = imported.removeprefix("opweld.")
            todo += [target, target.rpartition(".")[0]] if imported.startswith("opweld") else []
    assert "options" in seen
