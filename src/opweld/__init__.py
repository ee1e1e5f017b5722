"""opweld: from a PyTorch model to one verified, measured, self-contained `ModelNew` file."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opweld.api import Result, optimize
    from opweld.dynamo.backend import CompiledGraph, graphs
    from opweld.errors import JudgeFailed, OpweldError, UserError
    from opweld.judge import Judgement, Settings, Verdict, check
    from opweld.judge.batch import Judged, check_many
    from opweld.judge.functions import assert_equivalent, check_functions

__version__ = "0.1.0"
__all__ = [
    "CompiledGraph",
    "JudgeFailed",
    "Judged",
    "Judgement",
    "OpweldError",
    "Result",
    "Settings",
    "UserError",
    "Verdict",
    "__version__",
    "assert_equivalent",
    "check",
    "check_functions",
    "check_many",
    "graphs",
    "optimize",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())

# What needs torch, and what imports this very module, is imported when it is asked for.
_HOMES = {
    "Result": "opweld.api",
    "optimize": "opweld.api",
    "CompiledGraph": "opweld.dynamo.backend",
    "graphs": "opweld.dynamo.backend",
    "JudgeFailed": "opweld.errors",
    "OpweldError": "opweld.errors",
    "UserError": "opweld.errors",
    "Judgement": "opweld.judge",
    "Settings": "opweld.judge",
    "Verdict": "opweld.judge",
    "check": "opweld.judge",
    "Judged": "opweld.judge.batch",
    "check_many": "opweld.judge.batch",
    "assert_equivalent": "opweld.judge.functions",
    "check_functions": "opweld.judge.functions",
}


IN_WSL2 = "use WSL2: `wsl --install` in PowerShell, then in its Ubuntu `make demo` in a clone"


def unsupported_platform() -> str | None:
    """Why opweld cannot run on this operating system, in one sentence; None where it can."""
    system = str(sys.platform)
    if system == "linux":
        return None
    advice = IN_WSL2 if system == "win32" else "use a Linux machine"
    return f"opweld runs on Linux only, not on {system}; {advice}"


def __getattr__(name: str) -> Any:
    """The public names, each from its home: the command line starts without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if sentence := unsupported_platform():
        raise ImportError(sentence)
    return getattr(import_module(_HOMES[name]), name)
