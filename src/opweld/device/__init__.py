"""The device library: CUDA and C++ texts that emitted files copy, function by function.

A piece begins at a line `// @name deps: a, b` of one of the files below and ends before the next
such line; its text is what follows that line. Pieces inside `namespace op` are functions and types,
those outside are what must stand at the head of a file (includes and macros).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

# What g++ needs to turn loops over these functions into vector code (see mvec.h).
CPP_FLAGS = (
    "-O3",
    "-march=native",
    "-fopenmp-simd",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fno-tree-pre",
    "-fno-thread-jumps",
    "-mprefer-vector-width=512",
)

# Where a language has two pieces of one name, the earlier file's is taken.
_FILES = {
    "cuda": (
        *("storage_cuda.cuh", "extremes.cuh", "math_cuda.cuh", "math.h", "approximate.cuh"),
        *("storage.h", "positions.cuh", "vector.cuh", "pointwise.cuh"),
        *("launch.cuh", "contract.cuh", "contract_fma.cuh", "contract_short.cuh", "combine.cuh"),
        *("rows.cuh", "row_ring.cuh", "row_slices.cuh", "column_sums.cuh"),
        *("split.cuh", "split_held.cuh", "split_host.cuh", "contract_packed.cuh"),
        *("drowned.cuh", "pack.cuh", "contract_prologue.cuh"),
        *("mma.cuh", "contract_mma.cuh", "contract_live.cuh", "contract_mma_host.cuh"),
        *("attend_split.cuh", "attend_plain.cuh", "attend_softmax.cuh", "attend.cuh"),
        *("attend_mma.cuh", "attend_sm90.cuh"),
        *("hopper.cuh", "contract_sm90_tiles.cuh", "contract_sm90_load.cuh"),
        *("contract_sm90_sum.cuh", "contract_sm90_give.cuh", "contract_sm90.cuh"),
        "contract_live_sm90.cuh",
        *(
            "held.cuh",
            "place_cuda.cuh",
            "place.h",
            "fold.h",
            "fold_cuda.cuh",
            "fold_chunks.cuh",
            "reduce_rows.cuh",
            "told.cuh",
            "device_rows.cuh",
            "scan.h",
            "scan_cuda.cuh",
        ),
    ),
    "cpp": (
        *("storage_cpp.h", "mvec.h", "math_cpp.h", "math.h", "storage.h"),
        *("place_cpp.h", "place.h"),
        *("fold.h", "fold_cpp.h", "scan.h", "scan_cpp.h"),
    ),
}
_ROOTS = {"cuda": ("prologue",), "cpp": ("prologue", "mvec")}
_MARK = re.compile(r"^// @(\w+) deps:(.*)$")
_OPEN = "namespace op {"
_CLOSE = "}  // namespace op"


@dataclass(frozen=True, slots=True)
class _Piece:
    deps: tuple[str, ...]
    in_namespace: bool
    text: str


def _parse(source: str) -> dict[str, _Piece]:
    found: dict[str, _Piece] = {}
    name, deps, in_namespace, lines = "", (), False, list[str]()

    def close() -> None:
        if name:
            found[name] = _Piece(deps, in_namespace, "\n".join(lines).strip("\n") + "\n")

    for line in source.splitlines():
        mark = _MARK.match(line)
        if not mark and line not in (_OPEN, _CLOSE):
            lines.append(line)
            continue
        close()
        name, lines = "", []
        if mark:
            name, deps = mark[1], tuple(mark[2].replace(",", " ").split())
        else:
            in_namespace = line == _OPEN
    close()
    return found


def _read(file: str) -> str:
    return (resources.files(__name__) / file).read_text(encoding="utf-8")


def _library(files: Iterable[str]) -> Mapping[str, _Piece]:
    library: dict[str, _Piece] = {}
    for file in files:
        library = {**_parse(_read(file)), **library}
    return library


_LIBRARIES = {language: _library(files) for language, files in _FILES.items()}


def names(language: str = "cuda") -> tuple[str, ...]:
    """The names of all pieces of a language ("cuda" or "cpp"), sorted."""
    return tuple(sorted(_LIBRARIES[language]))


def pieces(names: Iterable[str], language: str = "cuda") -> tuple[str, ...]:
    """The texts of the named pieces and of all they need, each after what it needs.

    Joined by newlines they are a complete text in the language ("cuda" or "cpp"): includes and
    macros, then functions inside `namespace op { }`. The C++ text vectorises under
    `#pragma omp simd` when compiled by g++ with CPP_FLAGS and linked with -lmvec.

    Raises:
        KeyError: for a name that is no piece of the language.
    """
    library = _LIBRARIES[language]
    chosen = [library[name] for name in _ordered((*_ROOTS[language], *names), library)]
    head = tuple(piece.text for piece in chosen if not piece.in_namespace)
    body = tuple(piece.text for piece in chosen if piece.in_namespace)
    return (*head, _OPEN + "\n", *body, _CLOSE + "\n") if body else head


def _ordered(names: Iterable[str], library: Mapping[str, _Piece]) -> tuple[str, ...]:
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in order:
            return
        for dep in library[name].deps:
            visit(dep)
        order[name] = None

    for name in names:
        visit(name)
    return tuple(order)
