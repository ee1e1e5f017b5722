"""Runs the kernels of a graph on the CPU: the CUDA text by emulation, the C++ text as it is."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from tests.emulation.emulate import Shifted, emulate, from_bfloat16, to_bfloat16
from tests.guarded import call_in_child, guarded
from tests.kernel_meaning import result_stride
from tests.plan_meaning import run_plan

from opweld.device import CPP_FLAGS
from opweld.ir.expr import evaluate
from opweld.ir.graph import Graph
from opweld.ir.kernels.kernel import Buffer, Kernel
from opweld.ir.measured import NO_TABLE, Table
from opweld.ir.types import DType
from opweld.lower import lower
from opweld.plan import make_plan
from opweld.render import render
from opweld.target import CPU, SM_90A, Target

NUMPY: dict[DType, type] = {
    DType.BOOL: np.bool_,
    DType.U8: np.uint8,
    DType.I8: np.int8,
    DType.I16: np.int16,
    DType.I32: np.int32,
    DType.I64: np.int64,
    DType.F16: np.float16,
    DType.BF16: np.uint16,
    DType.F32: np.float32,
    DType.F64: np.float64,
}


TORCH: dict[DType, int] = {
    DType.U8: 0,
    DType.I8: 1,
    DType.I16: 2,
    DType.I32: 3,
    DType.I64: 4,
    DType.F16: 5,
    DType.F32: 6,
    DType.F64: 7,
    DType.BOOL: 11,
    DType.BF16: 15,
}


def poisoned(shape: Sequence[int], dtype: DType) -> np.ndarray:
    """An array in which an element that nobody writes shows."""
    array = np.empty(shape, NUMPY[dtype])
    array.reshape(-1).view(np.uint8)[...] = 1 if dtype is DType.BOOL else 0xA5
    return array


Execute = Callable[[Kernel, Sequence[np.ndarray], Mapping[str, int]], tuple[np.ndarray, ...]]


def executor(
    text: str, language: str, *, aligned: bool = True, wide_indices: bool = False
) -> Execute:
    """Runs kernels of a text: operands of any strides give flat results. `aligned` and
    `wide_indices` choose among the instances of CUDA kernels.

    bfloat16 operands and results are float32 arrays of rounded values, as the interpreter's are.
    """

    def execute(
        kernel: Kernel, operands: Sequence[np.ndarray], sizes: Mapping[str, int]
    ) -> tuple[np.ndarray, ...]:
        count = int(np.prod([evaluate(loop.extent, sizes) for loop in kernel.loops]))
        read = [b for b in kernel.buffers if not b.written]
        given = [as_bits(operands[b.source], b.dtype) for b in read]
        results = [poisoned([count], b.dtype) for b in kernel.buffers if b.written]
        if language == "cuda":
            run_cuda(text, kernel, given, results, sizes, aligned, wide_indices)
        else:
            run_cpp(text, kernel, given, results, sizes)
        written = [b for b in kernel.buffers if b.written]
        return tuple(
            from_bfloat16(array) if b.dtype is DType.BF16 else array
            for b, array in zip(written, results, strict=True)
        )

    return execute


def as_bits(array: np.ndarray, dtype: DType) -> np.ndarray:
    """bfloat16 values as their bits, with the strides of the array."""
    if dtype is not DType.BF16:
        return array
    strides = [stride // array.itemsize * 2 for stride in array.strides]
    memory = np.zeros(_reach(array) + 1, np.uint16)
    bits = np.lib.stride_tricks.as_strided(memory, array.shape, strides)
    bits[...] = to_bfloat16(array).reshape(array.shape)
    return bits


def _reach(array: np.ndarray) -> int:
    """The offset of the last element, in elements."""
    pairs = zip(array.shape, array.strides, strict=True)
    return sum((n - 1) * s // array.itemsize for n, s in pairs) if array.size else 0


def memory_of(array: np.ndarray) -> np.ndarray:
    """Everything between the first and the last element of an array with gaps."""
    if not array.size:
        return array
    return np.lib.stride_tricks.as_strided(array, (_reach(array) + 1,), (array.itemsize,))


def with_gaps(array: np.ndarray) -> np.ndarray:
    """The same values in memory with other strides: axes reversed, every second element unused."""
    if array.ndim == 0:
        return array
    storage = np.zeros([2 * size for size in array.shape[::-1]], array.dtype)
    view = storage.T[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def run_groups(
    graph: Graph,
    feeds: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    *,
    language: str,
    variant: str = "contiguous",
    aligned: bool = True,
    wide_indices: bool = False,
    table: Table = NO_TABLE,
    target: Target | None = None,
) -> list[np.ndarray]:
    """All outputs of a graph. With variant "strided" the feeds may have any strides."""
    plan = make_plan(graph, target or (SM_90A if language == "cuda" else CPU), table=table)
    kernels = lower(plan)
    source = render(graph.name, kernels, language)
    execute = executor(source.text, language, aligned=aligned, wide_indices=wide_indices)
    return list(run_plan(plan, kernels, feeds, sizes, variant=variant, execute=execute))


def _extents(kernel: Kernel, operands: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[int]:
    """The integer arguments of a launch, in order; results are row-major."""
    by_name = {
        b.name: array
        for b, array in zip((b for b in kernel.buffers if not b.written), operands, strict=True)
    }
    numbers = []
    for extent in kernel.extents:
        if extent.buffer is None or extent.axis is None:
            numbers.append(sizes[extent.name])
        elif extent.buffer in by_name:
            array = by_name[extent.buffer]
            numbers.append(array.strides[extent.axis] // array.itemsize)
        else:
            numbers.append(result_stride(kernel, extent.axis, sizes))
    return numbers


def run_cuda(
    text: str,
    kernel: Kernel,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    aligned: bool,
    wide_indices: bool,
) -> None:
    """One launch under emulation; every array lies against an unmapped page."""
    functor = f"struct {kernel.name}_element {{\n  using Operands" in text
    chosen = kernel.variant == "contiguous" or not all(x.flags.c_contiguous for x in operands)
    if functor or (chosen and not wide_indices):
        run_by_table(text, kernel, operands, results, sizes, aligned, wide_indices)
        return
    numbers = _extents(kernel, operands, sizes)
    count = results[0].size
    if count:
        memory = [memory_of(a) for a in operands]
        largest = 2**31 if wide_indices else max(count, *(array.size for array in memory), 1)
        name = f"{kernel.name}_{kernel.variant}"
        emulate(text, name, [*memory, *results, *numbers, count, largest, int(aligned)])


def run_by_table(
    text: str,
    kernel: Kernel,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    aligned: bool,
    wide_indices: bool,
) -> None:
    """One launch of the function that is given a table of operands."""
    given = dict(zip((b.name for b in kernel.buffers), (*operands, *results), strict=True))
    rows = {"in": list[int](), "out": list[int]()}
    for buffer in kernel.buffers:
        shape, steps = _laid_out(buffer, given[buffer.name], sizes)
        row = [TORCH[buffer.dtype], len(shape), *shape, *steps]
        rows["out" if buffer.written else "in"] += row
    arrays = [memory_of(a) for a in operands] + [*results]
    if not aligned:
        arrays = [Shifted(array, array.itemsize) for array in arrays]
    table = rows["in"] + given_row(text, kernel.name, sizes) + rows["out"]
    text = by_table(with_wide_indices(text) if wide_indices else text)
    emulate(text, f"{kernel.name}_by_table", [np.array(table, np.int64), 0, *arrays])


def given_row(text: str, group: str, sizes: Mapping[str, int]) -> list[int]:
    """The row of a table that has the sizes that no input shows."""
    body = _ENTRY.search(text[text.find(f"int {group}_launch(") - len('extern "C" ') :])
    names = _GIVEN.findall(body[2]) if body and body[1] == group else []
    return [-3, len(names), *(sizes[name] for name in names), *(0 for _ in names)] if names else []


def with_wide_indices(text: str) -> str:
    """The text of functors that are launched by 64-bit indices."""
    test = "num < (1ll << 31) && largest < (1ll << 31)"
    assert test in text
    return text.replace(test, "false")


def _laid_out(
    buffer: Buffer, array: np.ndarray, sizes: Mapping[str, int]
) -> tuple[list[int], list[int]]:
    """Sizes and strides of an operand; results are row-major."""
    if not buffer.written:
        return list(array.shape), [step // array.itemsize for step in array.strides]
    shape = list(eval(f"[{buffer.comment.partition('[')[2]}", {}, dict(sizes)))
    return shape, [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]


_FUNCTOR = re.compile(r"struct (\w+)_(?:element|row) [^{]*\{\n  using Operands = ([^;]*);")
_ENTRY = re.compile(r'extern "C" int (\w+)_launch\(([^}]*\n  const op::Operands call(?:.*\n)*?)\}')
_NAMED = re.compile(r"&(\w+) = operands\[(\d+)\]")
_GIVEN = re.compile(r"const int64_t (\w+) = operands\[\d+\]\.sizes\[\d+\];")


@cache
def by_table(text: str) -> str:
    """With a launcher of each group that numbers can be passed to, and in how many pieces rows are
    cut, where it is not to choose.
    """
    chosen = [r"(return )(pieces < 1 \? 1 : .*);", r"(_pieces\(int64_t .*\{\n  return )(.*);"]
    for each in chosen:
        text = re.sub(each, r"\1given_pieces ? given_pieces : (\2);", text)
    made = [f"static long given_pieces = 0;\n{text}"]
    for name, operands in _FUNCTOR.findall(text):
        kinds = _of_parts(text, name, re.findall(r"Along<(const)?", operands))
        scratch = f" {name}_scratch(" in text
        types = [f"{kind} void*" for kind in kinds] + ["void*"] * scratch
        made.append(_launcher(name, types, scratch))
    for name, body in _ENTRY.findall(text):
        types = [f"{_kind(text, name, each)} void*" for each, _ in _NAMED.findall(body)]
        for place in {int(each) for each in re.findall(r"= operands\[(\d+)\]\.sizes", body)}:
            types.insert(place, "")
        scratch = f" {name}_scratch(" in text
        made.append(_launcher(name, types + ["void*"] * scratch, scratch))
    return "\n".join(made)


def _of_parts(text: str, group: str, kinds: list[str]) -> list[str]:
    """The operands of a group, of which some may be parts of one."""
    body = text[text.find(f"int {group}_launch(") :].partition("\n}")[0]
    if "TensorView parts[]" not in body:
        return kinds
    results = [kind for kind in kinds if not kind]
    num = 1 + max(map(int, re.findall(r"operands\[(\d+)\]", body)))
    return ["const"] * (num - len(results)) + results


def _kind(text: str, group: str, operand: str) -> str:
    """Whether the kernels of a group write an operand."""
    found = re.search(rf"static int {group}_\w+\([^)]*?(const )?void\* {operand}\b", text)
    assert found, f"{operand} is no operand of {group}"
    return found[1] or ""


def _launcher(name: str, types: Sequence[str], scratch: bool) -> str:
    """Of a group with operands of these types; sizes, of which there is no type, are no array. With
    `scratch` the last one is memory, which must be as much as is asked for.
    """
    params = ", ".join(f"{kind} x{i}" for i, kind in enumerate(types) if kind)
    data = ", ".join(f"x{i}" if kind else "nullptr" for i, kind in enumerate(types))
    head = f"{name}_by_table(const int64_t* table, int64_t pieces, {params}, void* stream)"
    last = f"operands[{len(types) - 1}]"
    asked = f"if ({name}_scratch(operands) > {last}.sizes[0]) return 1;" if scratch else ""
    return f"""extern "C" int {head} {{
  const void* data[] = {{{data}}};
  TensorView operands[{len(types)}];
  for (int i = 0; i < {len(types)}; ++i, table += 2 + 2 * table[1]) {{
    operands[i] = {{const_cast<void*>(data[i]), int(table[0]), int(table[1]), table + 2,
                   table + 2 + table[1]}};
  }}
  given_pieces = pieces;
  {asked}
  return {name}_launch(operands, stream);
}}
"""


@cache
def library(text: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="opweld-test-") as folder:  # what is loaded may go
        source = Path(folder) / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp"
        source.write_text(text)
        library = source.with_suffix(".so")
        shared = ("-std=c++17", "-shared", "-fPIC")
        command = ["g++", *shared, *CPP_FLAGS, str(source), "-o", str(library), "-lmvec"]
        subprocess.run(command, check=True, timeout=240)
        return ctypes.CDLL(str(library))


def run_cpp(
    text: str,
    kernel: Kernel,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    sizes: Mapping[str, int],
) -> None:
    """The whole range in two calls that split a row, as threads would, against unmapped pages."""
    arrays = [guarded(array) for array in (*operands, *results)]
    function = getattr(library(text), f"{kernel.name}_{kernel.variant}")
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    numbers = [ctypes.c_int64(number) for number in _extents(kernel, operands, sizes)]
    count = results[0].size
    middle = count // 3

    def both_parts() -> None:
        for begin, end in ((0, middle), (middle, count)):
            function(*pointers, *numbers, ctypes.c_int64(begin), ctypes.c_int64(end))

    call_in_child(both_parts, arrays)
    for result, array in zip(results, arrays[len(operands) :], strict=True):
        result[...] = array
