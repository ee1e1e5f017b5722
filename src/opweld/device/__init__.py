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
    "cuda": """
        elements/storage_cuda.cuh math/min_max.cuh math/math_cuda.cuh math/math.h
        math/approximate.cuh elements/storage.h elements/positions.cuh elements/vector.cuh
        elements/space.cuh elements/operands.cuh elements/pointwise.cuh
        elements/transposed.cuh elements/tensor_list.cuh
        arch/launch.cuh gemm/contract.cuh gemm/contract_fma.cuh
        gemm/contract_short.cuh gemm/combine.cuh skinny/skinny.cuh skinny/gemv.cuh
        skinny/skinny_mma.cuh skinny/column_sums.cuh split/split.cuh split/split_packed.cuh
        split/split_host.cuh gemm/contract_packed.cuh split/cancellation.cuh gemm/pack.cuh
        gemm/contract_prologue.cuh arch/mma.cuh gemm/contract_mma.cuh gemm/contract_live.cuh
        gemm/contract_mma_host.cuh attention/attend_split.cuh attention/attend_plain.cuh
        attention/attend_softmax.cuh attention/attend.cuh attention/attend_mma.cuh
        attention/attend_sm90.cuh arch/hopper.cuh gemm/contract_sm90_tiles.cuh
        gemm/contract_sm90_load.cuh gemm/contract_sm90_sum.cuh gemm/contract_sm90_give.cuh
        gemm/contract_sm90.cuh gemm/contract_live_sm90.cuh
        gemm/packed_weights.cuh gemm/element_epilogue.cuh gemm/epilogue_runs.cuh
        conv/convolution.cuh conv/im2col.cuh
        conv/window_tiles.cuh conv/groups.cuh conv/give_laid_out.cuh conv/one_tap.cuh conv/halo.cuh
        conv/give_halos.cuh conv/halo_tiles.cuh conv/phases.cuh conv/transposed.cuh
        conv/joined_pixels.cuh conv/joined_columns.cuh conv/joined.cuh conv/depthwise.cuh
        conv/depthwise_tiles.cuh conv/planes.cuh conv/plane_tiles.cuh
        elements/index_cuda.cuh elements/index.h reduce/fold.h reduce/fold_cuda.cuh
        reduce/fold_chunks.cuh
        reduce/reduce_rows.cuh reduce/running_statistics.cuh reduce/kept_rows.cuh reduce/publish.cuh
        reduce/cooperative_rows.cuh scan/scan.h scan/scan_cuda.cuh
    """,
    "cpp": """
        elements/storage_cpp.h math/mvec.h math/math_cpp.h math/math.h elements/storage.h
        elements/index_cpp.h elements/index.h reduce/fold.h reduce/fold_cpp.h scan/scan.h
        scan/scan_cpp.h
    """,
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


_LIBRARIES = {language: _library(files.split()) for language, files in _FILES.items()}


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
