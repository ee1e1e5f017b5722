"""Which environment variables a judged process gets: those that builds and libraries read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_NAMES = frozenset(
    """
    PATH HOME USER LOGNAME SHELL TERM LANG LANGUAGE TZ TMPDIR HOSTNAME
    CC CXX CPP AR LD NVCC CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CPATH C_INCLUDE_PATH
    CPLUS_INCLUDE_PATH LIBRARY_PATH COMPILER_PATH GCC_EXEC_PREFIX SOURCE_DATE_EPOCH MAX_JOBS
    LD_LIBRARY_PATH LD_PRELOAD LD_BIND_NOW GLIBC_TUNABLES
    CMAKE_PREFIX_PATH PKG_CONFIG_PATH XDG_CACHE_HOME VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV
    NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES NVIDIA_TF32_OVERRIDE
    HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE TRANSFORMERS_OFFLINE
    """.split()
)
_PREFIXES = (
    "LC_ PYTHON TORCH PYTORCH ATEN_ CUDA CUDNN CUBLAS NCCL_ NVCC_ TRITON_ OMP_ GOMP_ KMP_ MKL_ "
    "OPENBLAS_ NUMEXPR_ NUMBA_ DNNL_ ONEDNN_ MALLOC_ CCACHE_ ASAN_ TSAN_ UBSAN_ OPWELD_"
)
_STARTS = tuple(_PREFIXES.split())
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|COOKIE|(^|_)(KEY|AUTH|PAT)(_|$)")


def passed_on(environ: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """Of `environ` the variables that a judged process gets.

    They are the listed ones whose names do not speak of a secret, and those that `also` names.
    """
    return {name: value for name, value in environ.items() if name in also or _is_listed(name)}


def _is_listed(name: str) -> bool:
    listed = name in _NAMES or name.startswith(_STARTS)
    return listed and not _SECRET.search(name.upper())
