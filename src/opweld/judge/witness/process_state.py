"""What a file can change of the process that imports it, beside torch: Python, signals, the system.

`process_state` is taken in the candidate's process before anything of its file runs, and later; the
referee keeps the first one and compares.
"""

from __future__ import annotations

import gc
import hashlib
import locale
import os
import resource
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

State = dict[str, str]

_VARIABLE, _FILTER, _FINDER = "os.environ: ", "warnings.filters: ", "sys.meta_path: "
_RECURSION = "sys.getrecursionlimit()"
# Variables that steer what others compute, or load, from then on.
_STEERING = (
    *("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "NUMEXPR_", "VECLIB_", "BLIS_"),
    *("CUDA_", "NVIDIA_", "CUBLAS", "CUDNN_", "NCCL_", "PYTORCH_", "TORCH_", "ATEN_"),
    *("LD_", "GLIBC_", "MALLOC_", "PYTHON", "LC_", "LANG"),
)
# Those that say where compilers are, and for what they compile, are a build's own business.
_OF_BUILDS = (
    *("TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_DIR", "TORCH_LOGS", "TORCH_SHOW_CPP_STACKTRACES"),
    *("TORCH_USE_CUDA_DSA", "TORCH_NVCC_FLAGS", "TORCH_DONT_CHECK_COMPILER_ABI"),
    *("CUDA_HOME", "CUDA_PATH", "CUDA_CACHE_PATH", "CUDA_MODULE_LOADING", "CUDA_VERSION"),
    *("PATH", "CC", "CXX", "CUDAHOSTCXX", "MAX_JOBS", "CFLAGS", "CXXFLAGS", "NVCC_FLAGS"),
)
# Parts of Python that bring a finder of their own when they are imported, as builds do.
_OWN_FINDERS = ("setuptools", "_distutils_hack", "pkg_resources", "six", "torch", "triton")
# Signals 32 and 33, which the C library takes for itself when the first thread is made.
_OF_THREADS = 0b11 << 31
# Those that LLVM, a part of Triton, takes when it first compiles; what Python does with them stays
# (lib/Support/Unix/Signals.inc: IntSigs, KillSigs, InfoSigs).
_OF_LLVM = sum(
    1 << (getattr(signal, f"SIG{name}") - 1)
    for name in (
        *("HUP", "INT", "TERM", "USR2", "USR1"),
        *("ILL", "TRAP", "ABRT", "FPE", "BUS", "SEGV", "QUIT", "SYS", "XCPU", "XFSZ"),
    )
)
_CAUGHT, _IGNORED = "the signals that are caught", "the signals that are ignored"
_ALL = " for everybody"
_BROAD = (Warning, UserWarning, DeprecationWarning, FutureWarning, RuntimeWarning)


def process_state() -> State:
    """Each thing by name, and a text that differs when it does."""
    return {
        **{name: repr(read) for name, read in _of_python().items()},
        **{f"the handler of {s.name}": _identity(signal.getsignal(s)) for s in signal.Signals},
        **{f"{_VARIABLE}{name}": _digest(value) for name, value in os.environ.items()},
        **{f"{_FILTER}{text}": "" for text in map(_filter_text, warnings.filters)},
        **{f"{_FINDER}{_finder_text(finder)}": "" for finder in sys.meta_path},
        **_of_numpy(),
    }


def changes(before: State, now: State) -> list[str]:
    """Names of what is not as it was and others would notice."""
    found = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
    return sorted(name for name in found if _counts(name, before, now))


def kernel_state(pid: int) -> State:
    """What the system itself knows of a process: no code of it is asked."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        caught = hex(int(fields["SigCgt"], 16) & ~_OF_THREADS)
        priority = os.getpriority(os.PRIO_PROCESS, pid)
        processors = sorted(os.sched_getaffinity(pid))
        folder = os.readlink(f"/proc/{pid}/cwd")
    except (OSError, ValueError, KeyError):
        return {}
    return {
        _CAUGHT: caught,
        _IGNORED: hex(int(fields["SigIgn"], 16)),
        "the signals that are blocked": fields.get("SigBlk", ""),
        "the file mode mask": fields.get("Umask", ""),
        "the priority": str(priority),
        "the processors that may be used": str(processors),
        "the working folder": folder,
    }


def without_signals_of_llvm(found: State) -> State:
    """A `kernel_state` in which it makes no difference whether LLVM has compiled anything."""
    masks = {name: found[name] for name in (_CAUGHT, _IGNORED) if name in found}
    return {**found, **{name: hex(int(mask, 16) & ~_OF_LLVM) for name, mask in masks.items()}}


def own_threads() -> State:
    """Of each thread of this process that runs already: its priority, policy and processors."""
    found = {}
    for task in map(int, os.listdir("/proc/self/task")):
        try:
            settings = (
                os.getpriority(os.PRIO_PROCESS, task),
                os.sched_getscheduler(task),
                sorted(os.sched_getaffinity(task)),
            )
        except OSError:
            continue  # it has just ended
        found[str(task)] = repr(settings)
    return found


def threads_changed(before: State) -> list[str]:
    """Those threads of this process that were given other settings since."""
    now = own_threads()
    return [f"thread {task}" for task, old in before.items() if now.get(task, old) != old]


def _of_python() -> dict[str, Any]:
    hooks = (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook)
    return {
        "sys.settrace": _identity(sys.gettrace()),
        "sys.setprofile": _identity(sys.getprofile()),
        "threading.settrace": _identity(threading.gettrace()),
        "threading.setprofile": _identity(threading.getprofile()),
        "the hooks for exceptions": list(map(_identity, hooks)),
        "sys.path_hooks": list(map(_identity, sys.path_hooks)),
        "the standard streams": list(map(_identity, (sys.stdin, sys.stdout, sys.stderr))),
        _RECURSION: sys.getrecursionlimit(),
        "sys.getswitchinterval()": sys.getswitchinterval(),
        "sys.getdlopenflags()": sys.getdlopenflags(),
        "sys.get_int_max_str_digits()": sys.get_int_max_str_digits(),
        "gc.isenabled()": gc.isenabled(),
        "gc.get_threshold()": gc.get_threshold(),
        "gc.get_debug()": gc.get_debug(),
        "gc.callbacks": list(map(_identity, gc.callbacks)),
        "warnings.showwarning": _identity(warnings.showwarning),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the limits of the process": [resource.getrlimit(n) for n in _LIMITS],
        "signal.pthread_sigmask()": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    }


_LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))


def _of_numpy() -> State:
    """Where it is imported, as torch does."""
    numpy = sys.modules.get("numpy")
    return {"numpy.geterr()": repr(numpy.geterr())} if numpy else {}


def _counts(name: str, before: State, now: State) -> bool:
    """Whether a difference is more than what importing a library, or a build, brings along."""
    if name.startswith(_VARIABLE):
        variable = name.removeprefix(_VARIABLE)
        return variable not in _OF_BUILDS and (variable.startswith(_STEERING) or name in before)
    if name.startswith(_FILTER):
        return name in now and name.endswith(_ALL)
    if name.startswith(_FINDER):
        return name in before or not name.removeprefix(_FINDER).startswith(_OWN_FINDERS)
    if name == _RECURSION:
        return int(now[name]) < int(before[name])  # torch's compiler takes more for itself
    return name != "numpy.geterr()" or name in before


def _filter_text(entry: tuple[Any, ...]) -> str:
    """A filter that names neither a message nor a module, of no category of its own, is for all."""
    action, message, category, module, line = entry
    if message is None and module is None and not line and category in _BROAD:
        return f"{action} {category.__name__}{_ALL}"
    return f"{action} {category.__name__} {_pattern(message)} {_pattern(module)} {line}"


def _pattern(given: Any) -> str:
    return str(getattr(given, "pattern", given))


def _finder_text(finder: Any) -> str:
    cls = finder if isinstance(finder, type) else type(finder)
    return f"{cls.__module__}.{cls.__qualname__}"


def _identity(value: Any) -> str:
    return f"{getattr(value, '__qualname__', type(value).__name__)} {id(value):x}"


def _digest(value: str) -> str:
    """What is in a variable may be secret."""
    return hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:16]
