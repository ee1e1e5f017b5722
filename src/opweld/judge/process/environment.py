"""The machine and the software, and torch's global settings, which a candidate must leave alone."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from opweld.judge.values import Environment

_C: Any = torch._C
# Set, each process of a judgement is started anew instead of forked.
FRESH = "OPWELD_JUDGE_FRESH"
_PERSISTING_L2 = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE in cuda.h
_ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "GLIBC_TUNABLES", "LD_PRELOAD")


def describe(device: torch.device) -> Environment:
    """What the figures of this run hold for."""
    on_cuda = device.type == "cuda"
    cpu = _field_of("/proc/cpuinfo", "model name") or platform.machine()
    return Environment(
        device=str(device),
        device_name=torch.cuda.get_device_name(device) if on_cuda else cpu,
        cpu=cpu,
        num_threads=torch.get_num_threads(),
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        driver=_driver() if on_cuda else None,
        allocator=_allocator(),
        float32_precision=", ".join(f"{k} {_guarded(v)}" for k, v in _PRECISION.items()),
    )


def choose_device(name: str) -> torch.device:
    """The device for "auto", "cpu" or "cuda".

    Raises:
        RuntimeError: CUDA is asked for and torch finds none.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no CUDA device on this machine")
    return torch.device("cuda", torch.cuda.current_device())


def is_spoilt() -> bool:
    """Whether CUDA cannot be used in this forked process, for it was looked at before the fork."""
    return bool(torch.cuda._is_in_bad_fork()) or FRESH in os.environ


def global_settings() -> dict[str, Any]:
    """Settings of the process that change what either side computes, by name."""
    named = {name: _guarded(read) for name, read in (_PRECISION | _SETTINGS).items()}
    return {**_of_backends(), **named}


def settings_changed(before: dict[str, str], now: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Old and new of those that differ."""
    return {name: (old, now.get(name, "")) for name, old in before.items() if old != now.get(name)}


def _persisting_l2_bytes() -> int:
    """L2 cache that this process's context sets apart from the rest, which a flush does not reach.

    The driver is asked, for the runtime library may be there several times.
    """
    if not torch.cuda.is_initialized():
        return 0
    size = ctypes.c_size_t()
    status = ctypes.CDLL("libcuda.so.1").cuCtxGetLimit(ctypes.byref(size), _PERSISTING_L2)
    return size.value if status == 0 else 0


def _flushes_subnormals() -> bool:
    return bool(torch.tensor(1e-40, dtype=torch.float32) * 1.0 == 0)


_PRECISION: dict[str, Callable[[], Any]] = {
    "matmul": lambda: torch.get_float32_matmul_precision(),
    "cuda matmul": lambda: torch.backends.cuda.matmul.fp32_precision,
    "cudnn convolution": lambda: torch.backends.cudnn.conv.fp32_precision,
}
_SETTINGS: dict[str, Callable[[], Any]] = {
    "reduced precision in fp16 products": (
        lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    ),
    "reduced precision in bf16 products": (
        lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    ),
    "default dtype": lambda: str(torch.get_default_dtype()),
    "default device": lambda: str(torch.get_default_device()),
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "cudnn benchmark": lambda: torch.backends.cudnn.benchmark,
    "cudnn deterministic": lambda: torch.backends.cudnn.deterministic,
    "threads": torch.get_num_threads,
    "grad mode": torch.is_grad_enabled,
    "autocast on the CPU": lambda: _autocast("cpu"),
    "autocast on CUDA": lambda: _autocast("cuda"),
    "autocast's cache": torch.is_autocast_cache_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "anomaly mode": lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
    "warnings each time": torch.is_warn_always_enabled,
    "threads between operators": torch.get_num_interop_threads,
    "uninitialised memory filled": lambda: torch.utils.deterministic.fill_uninitialized_memory,
    "function modes": lambda: _C._len_torch_function_stack(),
    "dispatch modes": lambda: _C._len_torch_dispatch_stack(),
    "hooks on saved tensors": lambda: _C._autograd._top_saved_tensors_default_hooks(False),
    "hooks on optimizers": lambda: [len(hooks) for hooks in _hooks_of_optimizers()],
    "how tensors are printed": lambda: vars(torch._tensor_str.PRINT_OPTS),
    "parameters swapped": torch.__future__.get_swap_module_params_on_conversion,
    "quantized engine": lambda: torch.backends.quantized.engine,
    "subnormals flushed to zero": _flushes_subnormals,
    "persisting L2 cache": _persisting_l2_bytes,
}


def _autocast(device: str) -> tuple[bool, str]:
    return torch.is_autocast_enabled(device), str(torch.get_autocast_dtype(device))


def _hooks_of_optimizers() -> list[Any]:
    from_optim: Any = sys.modules["torch.optim.optimizer"]
    return [from_optim._global_optimizer_pre_hooks, from_optim._global_optimizer_post_hooks]


def _of_backends() -> dict[str, Any]:
    """The flags of every part of torch.backends that is a plain value or a function without
    arguments whose name says that it is asked.
    """
    found: dict[str, Any] = {}
    for part in (
        "cuda",
        "cuda.matmul",
        "cudnn",
        "mkldnn",
        "mkldnn.matmul",
        "mkl",
        "nnpack",
        "opt_einsum",
        "openmp",
        "mps",
    ):
        holder: Any = torch.backends
        for step in part.split("."):
            holder = getattr(holder, step, None)
        names = {*dir(holder), *dir(type(holder))} if holder is not None else set[str]()
        for name in sorted(names):
            if not name.startswith("_"):
                value = _guarded(lambda h=holder, n=name: getattr(h, n))  # type: ignore[misc]
                if callable(value) and name.endswith("_enabled"):
                    value = _guarded(value)
                if isinstance(value, (bool, int, str, float, type(None))):
                    found[f"torch.backends.{part}.{name}"] = value
    return found


def _guarded(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError:
        # torch refuses to read one of its two precision interfaces once the other was written
        return "mixed"
    except (AttributeError, AssertionError, TypeError):
        return "unknown"  # not in this release of torch


def _field_of(path: str, name: str) -> str | None:
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), None)


def _driver() -> str | None:
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return None
    return next((word for word in first.split() if word[0].isdigit() and "." in word), None)


def _allocator() -> str:
    chosen = [f"{name}={os.environ[name]}" for name in _ALLOCATOR_VARIABLES if name in os.environ]
    return ", ".join(chosen) or "default"
