"""The operators of a CUDA file on the CPU: its host code as it is, its kernels under emulation.

What differs from the GPU: the operators are registered for the CPU; `set_stream` and
`set_capturing` say which stream is current and whether it captures a graph.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tests.emulation.emulate import shared_runtime, translate

from opweld.emission.support import ABI_FLAG

_HERE = Path(__file__).parent
_TORCH = Path(torch.__file__).parent / "include"
_FLAGS = ("-std=c++17", "-w", "-fPIC", "-march=native", "-ffp-contract=fast", "-fwrapv")
# Host code runs once a call and includes PyTorch's headers, which are compiled once.
_OF_HOST = (str(_HERE.parent / "precompiled" / "g++"), "-O0")
_OF_KERNELS = ("g++", "-O1")
_GUARD = re.compile(r"  const torch::stable::accelerator::DeviceGuard device_guard\(.*?\);\n")
# What CUDA and PyTorch's CUDA part give to the host code.
SHIM = """
#include <cstdint>
static int capturing_now = 0;
static void* stream_now = nullptr;
extern "C" void set_capturing(int capturing) { capturing_now = capturing; }
extern "C" void set_stream(int64_t stream) { stream_now = reinterpret_cast<void*>(stream); }
extern "C" int32_t aoti_torch_get_current_cuda_stream(int32_t, void** stream) {
  *stream = stream_now;
  return 0;
}
extern "C" int32_t aoti_torch_cpu_add_Tensor(void*, void*, double, void**);
extern "C" int32_t aoti_torch_cuda_add_Tensor(void* left, void* right, double by, void** sum) {
  return aoti_torch_cpu_add_Tensor(left, right, by, sum);
}
extern "C" int stream_is_capturing(void*, int* capturing) {
  *capturing = capturing_now;
  return 0;
}
static int64_t waits = 0;
extern "C" int64_t num_waits() { return waits; }
extern "C" int mark_event(void**, void*) { return 0; }
extern "C" int wait_for_event(void*, void*) {
  ++waits;
  return 0;
}
extern "C" int end_event(void*) { return 0; }
"""
# The device's side of the same functions, which the shim stands for.
_HELD = re.compile(r"// whether work given to the stream.*?int end_event.*?\n}\n", re.DOTALL)


def emulated_kernels(cuda_text: str) -> str:
    """A CUDA text as C++ that runs its kernels thread by thread."""
    return translate(_HELD.sub("", cuda_text))


def load_operators(kernels: str, host_text: str, *, instance: int = 0) -> tuple[Any, ctypes.CDLL]:
    """The operators, and the library with the shim's functions.

    `kernels` is C++ that defines what the host text declares: emulated kernels, or a stand-in.
    Instances share their code and nothing else: each holds weights of its own.
    """
    linked = (str(shared_runtime()),) if "emulation::" in kernels else ()
    parts = (kernels, host_text, SHIM, *linked)
    name = _name(*parts)
    library = _built(name, kernels, host_text, linked)
    if instance:
        name, first = _name(*parts, str(instance)), name
        library = _copied(library, first, name)
    torch.ops.load_library(library)
    return getattr(torch.ops, name), ctypes.CDLL(str(library))


def _name(*parts: str) -> str:
    """A namespace; all are equally long, so that a library can be given another. What one PyTorch
    links no other can load.
    """
    digest = hashlib.sha256("\0".join((torch.__version__, *parts)).encode()).hexdigest()[:16]
    return f"opweld_emulated_{digest}"


def _copied(library: Path, name: str, other: str) -> Path:
    """The same library under another namespace, without a second compilation."""
    copy = library.with_name(f"{other}.so")
    if not copy.exists():
        partial = copy.with_suffix(f".{os.getpid()}.so")
        partial.write_bytes(library.read_bytes().replace(name.encode(), other.encode()))
        partial.rename(copy)
    return copy


@cache
def _built(name: str, kernels: str, host_text: str, linked: tuple[str, ...]) -> Path:
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"opweld-operators-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    library = folder / f"{name}.so"
    if library.exists():
        return library
    main = _GUARD.sub("", host_text).replace(
        "STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CUDA",
        "STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CPU",
    )
    flags = [*_FLAGS, "-fno-gnu-unique", "-DUSE_CUDA", ABI_FLAG, f"-DTORCH_EXTENSION_NAME={name}"]
    for path in (_TORCH, _HERE / "include", _HERE):
        flags += ["-I", str(path)]
    libraries = _TORCH.parent / "lib"
    linking = ["-Wl,-Bsymbolic", f"-L{libraries}", "-ltorch_cpu", "-lc10"]
    linking += [f"-Wl,-rpath,{libraries}"]
    with tempfile.TemporaryDirectory(dir=folder) as work:
        objects = []
        for part, compiler, text in (
            ("main", _OF_HOST, main),
            ("kernels", _OF_KERNELS, kernels),
            ("shim", _OF_KERNELS, SHIM),
        ):
            source = Path(work, f"{part}.cpp")
            source.write_text(text)
            objects.append(str(source.with_suffix(".o")))
            _run([*compiler, *flags, "-c", str(source), "-o", objects[-1]])
        _run(["g++", "-shared", *objects, *linked, *linking, "-o", str(Path(work, "made.so"))])
        Path(work, "made.so").rename(library)
    return library


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
