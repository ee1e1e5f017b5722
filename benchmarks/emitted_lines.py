"""What the lines of an emitted file are: the original, kernels, host code, Python, support."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

MARKER = "# --- opweld's library, as far as this file uses it ---"
SOURCES = Path(__file__).resolve().parent.parent / "src" / "opweld"
# The names of the texts in an emitted file, by their beginnings.
TEXTS = {
    "_ORIGINAL": "original",
    "_CUDA": "kernels",
    "_CPU": "kernels",
    "_DEVICE": "kernels",
    "_MAIN": "host",
    "_HOST": "host",
}
PARTS = ("original", "kernels", "host", "python", "support_python", "support_cpp")


def parts_of(text: str) -> dict[str, int]:
    """Lines of each of PARTS, which add up to those of the file.

    `kernels` and `host` are the C++ that was written for this model. What stands word for word in
    the compiler's headers is `support_cpp`, whole definitions of its Python pieces are
    `support_python`, and `python` is the rest: references, classes, the list of libraries. A blank
    or closing line counts with the line before it, blank lines between definitions with what
    follows.
    """
    lines, counts, begin = text.splitlines(), Counter[str](), 0
    for statement in ast.parse(text).body:
        end = statement.end_lineno or begin
        span = lines[begin:end]
        kind = _kind(statement, lines, lines_before_support(lines))
        if kind in ("kernels", "host"):
            fixed = _num_fixed(span)
            counts.update({kind: len(span) - fixed, "support_cpp": fixed})
        else:
            counts[kind] += len(span)
        begin = end
    counts["python"] += len(lines) - begin
    return {part: counts[part] for part in PARTS}


def lines_before_support(lines: list[str]) -> int:
    """How many lines stand before the support, which is last; all of them where there is none."""
    return lines.index(MARKER) if MARKER in lines else len(lines)


def _kind(statement: ast.stmt, lines: list[str], support: int) -> str:
    definition = isinstance(statement, ast.FunctionDef | ast.ClassDef)
    if definition and statement.lineno > support:
        return "support_python"
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
        (target,) = statement.targets
        name = target.id if isinstance(target, ast.Name) else ""
        return next((kind for head, kind in TEXTS.items() if name.startswith(head)), "python")
    return "support_python" if _segment(statement, lines) in _definitions() else "python"


def _segment(statement: ast.stmt, lines: list[str]) -> str:
    """The text of a statement that has its lines to itself."""
    return "\n".join(lines[statement.lineno - 1 : statement.end_lineno])


def _num_fixed(span: list[str]) -> int:
    """Lines of C++ that stand in the headers; those without a word go with the line before."""
    fixed, before = 0, False
    for line in span:
        if any(c.isalnum() for c in line):
            before = line.strip() in _header_lines()
        fixed += before
    return fixed


@cache
def _header_lines() -> frozenset[str]:
    files = [path for path in (SOURCES / "device").rglob("*.*h") if path.suffix in (".h", ".cuh")]
    return frozenset(line.strip() for path in files for line in path.read_text().splitlines())


@cache
def _definitions() -> frozenset[str]:
    """Every function and class of the pieces that go into emitted files as they are."""
    found = set()
    for path in (SOURCES / "emission" / "texts").glob("*.txt"):
        text = path.read_text("utf-8")
        if "@TARGET@" in text:
            continue  # the support, which is told by its place
        body = ast.parse(text).body
        kinds = (ast.FunctionDef, ast.ClassDef)
        found |= {_segment(each, text.splitlines()) for each in body if isinstance(each, kinds)}
    return frozenset(found)
