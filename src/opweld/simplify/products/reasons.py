"""Why calls that rules make are PyTorch's, as the plan says it."""

from __future__ import annotations

from ...ir.graph import Node
from ...ir.ops import Op

CONDENSED = "a product with a condensed weight"
MEAN_OF_ROWS = "a product with the mean of rows"
IN_ORDER = "a product in the order of least time"
OF_TRIANGLE = "a product with what is not zero of a triangle"
OVER_WINDOWS = "a convolution with the sums of its taps over windows"
OF_WEIGHTS = "a product with the product of two weights"
FOLDED = "a product with a scaled weight"

_MADE = (CONDENSED, MEAN_OF_ROWS, IN_ORDER, OF_TRIANGLE, OVER_WINDOWS, OF_WEIGHTS, FOLDED)


def is_made(node: Node) -> bool:
    """Whether a rule made a call."""
    return node.op is Op.CALL and node.attrs.reason in _MADE
