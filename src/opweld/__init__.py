"""opweld: from a PyTorch model to one verified, measured, self-contained `ModelNew` file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opweld.api import Result, optimize

__version__ = "0.1.0"
__all__ = ["Result", "__version__", "optimize"]


def __getattr__(name: str) -> Any:
    """`optimize` and `Result`, which need torch: the command line starts without it."""
    if name not in ("Result", "optimize"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opweld import api  # noqa: PLC0415

    return getattr(api, name)
