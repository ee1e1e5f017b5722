"""Runs the launchers of a CUDA text on the CPU, with every access and barrier watched.

`emulate` compiles the text as C++ against cuda_emulation.h (once per text: put all kernels of a
test in one), and runs one launcher in a process of its own. Arrays lie between unmapped pages.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

_HERE = Path(__file__).parent
# Products and sums contract to one rounding, as nvcc's do.
_FLAGS = (
    *("-std=c++17", "-O1", "-w", "-march=native", "-ffp-contract=fast"),
    *("-fexpensive-optimizations", "-fwrapv", "-fno-strict-aliasing"),
    # Most of the time goes into code that runs once: passes that only make it faster are left out.
    *("-fira-region=one", "-fno-tree-pta", "-fno-ivopts", "-fno-dse", "-fno-forward-propagate"),
    *("-fno-cprop-registers", "-fno-if-conversion", "-fno-if-conversion2", "-fno-reorder-blocks"),
    *("-fno-shrink-wrap", "-fno-split-wide-types", "-fno-compare-elim"),
    "-fno-combine-stack-adjustments",
)
# -O1 without these keeps compiling fast; the runtime defines the two functions that they call.
_CHECKS = ("-fsanitize=alignment,bounds", "-fno-sanitize-recover=all")
_RUNTIME_FLAGS = (
    *("-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE"),
    *("-fPIC", "-fno-gnu-unique", "-c"),
)
_INCLUDES = ("-I", str(_HERE / "include"), "-I", str(_HERE))
_FAULT_EXIT = 70
ORDERS = ("forward", "reverse", "seeded")


class EmulationFault(Exception):
    """The kernel did what no kernel may: its message names kernel, block, thread and array."""


class OrderDependence(EmulationFault):
    """The result depends on the order in which threads run: a barrier is missing, or a race."""


@dataclass(frozen=True, slots=True)
class Shifted:
    """An array argument whose address is `offset_bytes` past a multiple of 256."""

    array: np.ndarray
    offset_bytes: int


Argument = np.ndarray | Shifted | int | float | None


def emulate(
    cu_text: str,
    launcher: str,
    args: Sequence[Argument],
    *,
    order: str = "forward",
    guard: str = "end",
    seed: int = 0,
    alignment: int = 16,
    timeout_s: float = 60.0,
    multiprocessors: int = 1,
) -> None:
    """Calls `extern "C" int launcher(args..., stream)` and updates the arrays in place.

    Arrays are passed as pointers (bfloat16 as uint16: see `to_bfloat16`), numbers as the launcher's
    own parameter types, None as a null pointer; the stream is added. Arrays of `const` pointers are
    read-only. With guard "end" an array ends at most `alignment - 1` bytes before an unmapped page,
    with "front" it begins behind one.

    Raises:
        EmulationFault: for an access out of bounds or misaligned, a write to a const array, barrier
            divergence, a non-zero result, or a run longer than `timeout_s` seconds.
    """
    program = build(cu_text)
    arrays = [a.array if isinstance(a, Shifted) else a for a in args]
    with tempfile.NamedTemporaryFile(dir=_memory_folder()) as file:
        words = _pack(args, alignment, file)
        command = [str(program), launcher, order, str(seed), guard, file.name, *words, "n"]
        _run(command, timeout_s, multiprocessors)
        _unpack(arrays, words, file)


def emulate_orders(
    cu_text: str, launcher: str, args: Sequence[Argument], *, seeds: int = 2, **options: object
) -> None:
    """`emulate` under several orders of blocks and threads, which must agree bit by bit.

    Raises:
        OrderDependence: naming the first array and element that differ.
        EmulationFault: as `emulate`.
    """
    before = [_copy(a) for a in args]
    runs = [("forward", 0), ("reverse", 0), *(("seeded", seed) for seed in range(1, seeds + 1))]
    for number, (order, seed) in enumerate(runs):
        now = list(args) if number == 0 else [_copy(a) for a in before]
        emulate(cu_text, launcher, now, order=order, seed=seed, **options)  # type: ignore[arg-type]
        if number:
            _require_equal(launcher, args, now, order)


def _copy(argument: Argument) -> Argument:
    if isinstance(argument, Shifted):
        return Shifted(argument.array.copy(), argument.offset_bytes)
    return argument.copy() if isinstance(argument, np.ndarray) else argument


def _require_equal(
    launcher: str, first: Sequence[Argument], now: Sequence[Argument], order: str
) -> None:
    for index, (a, b) in enumerate(zip(first, now, strict=True)):
        a = a.array if isinstance(a, Shifted) else a
        b = b.array if isinstance(b, Shifted) else b
        if not isinstance(a, np.ndarray) or a.tobytes() == b.tobytes():
            continue
        unequal = a.reshape(-1).view(np.uint8) != b.reshape(-1).view(np.uint8)
        differ = np.flatnonzero(unequal.reshape(a.size, -1).any(1))
        raise OrderDependence(
            f"{launcher}: argument {index}, element {differ[0]} is {a.flat[differ[0]]} with "
            f"threads run forward and {b.flat[differ[0]]} run {order} ({differ.size} differ)"
        )


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 values as bfloat16 bits in uint16, rounded to nearest even."""
    wide = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits in uint16 as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


# --- the program ---


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _pack(args: Sequence[Argument], alignment: int, file) -> list[str]:
    words = []
    for argument in args:
        if argument is None:
            words.append("n")
        elif isinstance(argument, (bool, int, np.integer)):
            words.append(f"i:{int(argument)}")
        elif isinstance(argument, (float, np.floating)):
            words.append(f"f:{float(argument).hex()}")
        else:
            shift = argument.offset_bytes if isinstance(argument, Shifted) else 0
            array = argument.array if isinstance(argument, Shifted) else argument
            aligned = 256 if shift else max(alignment, array.itemsize)
            words.append(f"p:{file.tell()}:{array.nbytes}:{aligned}:{shift}")
            file.write(np.ascontiguousarray(array).tobytes())
    file.flush()
    return words


def _unpack(arrays: Sequence[Argument], words: Sequence[str], file) -> None:
    for array, word in zip(arrays, words, strict=True):
        if not word.startswith("p"):
            continue
        offset, num_bytes = map(int, word.split(":")[1:3])
        file.seek(offset)
        array[...] = np.frombuffer(file.read(num_bytes), array.dtype).reshape(array.shape)


def _run(command: Sequence[str], timeout_s: float, multiprocessors: int) -> None:
    environment = {**os.environ, "EMULATED_MULTIPROCESSORS": str(multiprocessors)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=environment
        )
    except subprocess.TimeoutExpired:
        raise EmulationFault(f"{command[1]} did not end within {timeout_s} s") from None
    if done.returncode == _FAULT_EXIT:
        raise EmulationFault(done.stderr.strip())
    if done.returncode:
        raise EmulationFault(f"{command[1]} ended with {done.returncode}: {done.stderr.strip()}")


@cache
def build(cu_text: str) -> Path:
    """The program of a text, compiled once per content, and of the runtime that it is linked with.

    Raises:
        RuntimeError: with the compiler's messages.
    """
    text = translate(cu_text)
    linked = map(str, runtime())
    program = _folder() / _digest(text, *_headers(), *_FLAGS, *_CHECKS, *linked)
    if not program.exists():
        source = program.with_suffix(f".{os.getpid()}.cpp")
        source.write_text(text)
        _compile([*_FLAGS, *_CHECKS, *_INCLUDES, str(source), *map(str, runtime())], program)
        source.unlink()
    return program


@cache
def runtime() -> tuple[Path, ...]:
    """The objects that every program is linked with."""
    return tuple(_object(source) for source in sorted(_HERE.glob("*.cpp")))


@cache
def shared_runtime() -> Path:
    """The same for all libraries of a process, as one: the stacks of a thousand threads take two
    thousand of the mappings that a process may have, and are never given back.
    """
    objects = [each for each in runtime() if not each.name.startswith("program")]
    library = _folder() / f"libruntime-{_digest(*map(str, objects))}.so"
    if not library.exists():
        _compile(["-shared", *map(str, objects)], library)
    return library


def _object(source: Path) -> Path:
    digest = _digest(source.read_text(), *_headers(), *_RUNTIME_FLAGS)
    compiled = _folder() / f"{source.stem}-{digest}.o"
    if not compiled.exists():
        _compile([*_RUNTIME_FLAGS, *_INCLUDES, str(source)], compiled)
    return compiled


@cache
def _headers() -> tuple[str, ...]:
    return tuple(path.read_text() for path in sorted(_HERE.rglob("*.h")))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"opweld-emulation-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


def _compile(options: Sequence[str], output: Path) -> None:
    """Publishes by rename, so that test processes may build the same text at once."""
    partial = output.with_suffix(f".{os.getpid()}.part{output.suffix}")
    command = [os.environ.get("CXX", "g++"), *options, "-o", str(partial)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the emulation of a CUDA text does not compile:\n{done.stderr}")
    partial.rename(output)


# --- CUDA's own syntax ---

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# Those of one layout are static, and called by the one that chooses.
_LAUNCHER = re.compile(
    r'extern\s+"C"\s+(?:__host__\s+)?(?:int|cudaError_t)\s+(\w+)\s*\('
    r"|^static int (\w+_(?:contiguous|strided))\(",
    re.MULTILINE,
)
_ALIGN = r"(?:\s*(?:__align__|alignas)\s*\(\s*(\w+)\s*\))?"
_SHARED = re.compile(
    rf"(extern\s+)?__shared__{_ALIGN}\s+((?:[\w:]+|<[^;<>]*(?:<[^;<>]*>)?[^;<>]*>|\s)+?[\s>])"
    rf"\s*(\w+)((?:\s*\[[^\]]*\])*)\s*;"
)
# One PTX instruction with a float result and float operands: a function of ptx.h.
_INSTRUCTION = re.compile(r'asm\("([\w.]+) %0(?:, %\d)+;" : "=f"\((\w+)\) : (.*?)\);')


# Any other: a call of the function named by its first word, with all operands in their order. What
# declares predicates and labels goes before; the text may be a macro. OPWELD_<n> names an array and
# the first of its elements.
_BEFORE = r'(?:"\{\\n"\s*)?(?:"(?:\.reg|setp|\w+:)[^"]*"\s*)*'
_ASM = re.compile(
    rf"asm(?:\s+volatile)?\s*\(\s*{_BEFORE}"
    r'(?:"([\w.:]+)|(OPWELD_\w+)(?=\s*")|(OPWELD_\w+)\("(\w+)"\))'
)
_OPERAND = re.compile(r'(?:"[=+]?[a-z]"|OPWELD_\d+)\s*\(')
# It keeps the compiler from moving a value, and does nothing.
_PIN = re.compile(r'asm volatile\(""[^;]*\);')
_MACRO = re.compile(r'#define (OPWELD_\w+) *(?:\\\n)?\s*"([\w.:]+)')
# One that is given the type of both operands.
_TYPED = re.compile(
    r'#define (OPWELD_\w+)\(type\)(?:[^"]*"[^"]*")*?[^"]*"(wgmma[\w.]+)" type "." type'
)
# A special register: a function of hopper.h.
_REGISTER = re.compile(r'asm\("mov\.u32 %0, %%([\w.]+);" : "=r"\((\w+)\)\);')


def translate(cu_text: str) -> str:
    """The CUDA text as C++: launches, shared memory, and the table of its launchers."""
    text = _PIN.sub(";", _INSTRUCTION.sub(_instruction, _COMMENT.sub(_blank, cu_text)))
    text = _REGISTER.sub(lambda m: f"{m[2]} = ::{m[1].replace('.', '_')}();", text)
    text = _rewrite_instructions(text)
    text = _SHARED.sub(_shared, _rewrite_launches(text))
    rows = [
        f'  {{"{name}", [](const emulation::Argument* a, int n, const char* s) '
        f'{{ return emulation::call(&{name}, a, n, s); }}, "{_parameters(text, m.end() - 1)}"}},'
        for m in _LAUNCHER.finditer(text)
        if (name := m[1] or m[2])
    ]
    rows = list(dict.fromkeys(rows))
    head = '#include "cuda_emulation.h"\n#line 1 "kernel.cu"\n'
    table = "\nextern const emulation::Launcher emulation_launchers[] = {\n"
    return head + text + table + "\n".join(rows) + "\n  {nullptr, nullptr, nullptr}};\n"


def _blank(comment: re.Match[str]) -> str:
    return " " + "\n" * comment[0].count("\n")


def _instruction(match: re.Match[str]) -> str:
    operands = ", ".join(re.findall(r'"f"\((\w+)\)', match[3]))
    return f"{match[2]} = ::{match[1].replace('.', '_')}({operands});"


def _rewrite_instructions(text: str) -> str:
    macros = {match[1]: match[2] for match in _MACRO.finditer(text)}
    typed = {match[1]: match[2] for match in _TYPED.finditer(text)}
    while match := _ASM.search(text):
        closing = _closing(text, text.index("(", match.start()))
        inside = text[match.end() : closing]
        starts = [operand.end() - 1 for operand in _OPERAND.finditer(inside)]
        operands = [inside[at + 1 : _closing(inside, at)] for at in starts]
        of_types = f"{typed[match[3]]}{match[4]}.{match[4]}" if match[3] else ""
        name = re.sub(r"[.:]+", "_", of_types or match[1] or macros[match[2]])
        call = f"::{name}({', '.join(operands)})" + "\n" * inside.count("\n")
        text = text[: match.start()] + call + text[closing + 1 :]
    return text


def _parameters(text: str, opening: int) -> str:
    inside = text[opening + 1 : _closing(text, opening)]
    return ",".join(re.findall(r"(\w+)\s*(?:,|$)", inside))


def _shared(match: re.Match[str]) -> str:
    extern, align, kind, name, sizes = match.groups()
    kind = kind.strip()
    if extern:
        return f"{kind}* const {name} = static_cast<{kind}*>(emulation::dynamic_shared());"
    element = f"{kind}{sizes}"
    wrapper = f"struct alignas({align}) {name}_aligned {{ {kind} value{sizes}; }};" if align else ""
    value = (
        f'emulation::shared<{name}_aligned>(&{name}_key, "{name}").value'
        if align
        else f'emulation::shared<{element}>(&{name}_key, "{name}")'
    )
    return f"static char {name}_key; {wrapper} auto& {name} = {value};"


def _rewrite_launches(text: str) -> str:
    while (at := text.find("<<<")) >= 0:
        begin = _callee_begin(text, at)
        end_geometry = text.index(">>>", at)
        opening = text.index("(", end_geometry)
        closing = _closing(text, opening)
        callee, geometry = text[begin:at].strip(), text[at + 3 : end_geometry]
        name = re.split(r"[\s<]", callee)[0]
        call = (
            f'emulation::launch("{name}", emulation::Geometry({geometry}), '
            f"[&] {{ {callee}{text[opening : closing + 1]}; }})"
        )
        text = text[:begin] + call + text[closing + 1 :]
    return text


def _callee_begin(text: str, end: int) -> int:
    at = end - 1
    while text[at].isspace():
        at -= 1
    if text[at] == ">":
        at = _opening_angle(text, at) - 1
        while text[at].isspace():
            at -= 1
    while at >= 0 and (text[at].isalnum() or text[at] in "_:"):
        at -= 1
    return at + 1


def _opening_angle(text: str, at: int) -> int:
    depth = parens = 0
    for position in range(at, -1, -1):
        parens += (text[position] == ")") - (text[position] == "(")
        if parens == 0:
            depth += (text[position] == ">") - (text[position] == "<")
        if depth == 0:
            return position
    raise ValueError("unbalanced template arguments before <<<")


def _closing(text: str, opening: int) -> int:
    depth = 0
    for position in range(opening, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return position
    raise ValueError("unbalanced parentheses")
