"""The first stage: an nn.Module and example inputs become a tensor graph and its contract.

The only stage that imports torch. `capture` is the stage; everything else here serves it.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from opweld.ir.contract import EXAMPLE_ONLY, Capture, Needs

from .arguments import bind
from .modules.facts import refuse_attachments
from .submodules import Asked as Asked
from .submodules import capture_submodules as capture_submodules
from .variants import capture_variants


def capture(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    name: str,
    batch: bool = True,
    needs: Needs = EXAMPLE_ONLY,
    given_back: frozenset[str] = frozenset(),
) -> Capture:
    """The module's forward as graphs, one for each state of `needs` in which it differs.

    `args` and `kwargs` are example inputs with at least one tensor; with `batch` their common
    leading size becomes symbolic where torch.export allows. Calls that condense (sums, norms,
    losses) stay PyTorch's on the user's lines `given_back` ("model.py:14"). The module is left as
    it was. Raises CaptureError with the reason and the user's line.
    """
    refuse_attachments(module)
    arguments = bind(module, tuple(args), dict(kwargs or {}))
    return capture_variants(
        module, arguments, name=name, batch=batch, needs=needs, given_back=given_back
    )
