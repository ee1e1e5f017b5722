"""Whether convolutions are in TF32, which torch's flags allow by default: where that saves time."""

from __future__ import annotations

from ...ir.graph import Graph, Node
from ...ir.kernels.product import Mode
from ...ir.plan import Conditions
from ...target import Target
from ..cost import estimate_product
from .recognised import MODES, NoProduct, is_product, product_of
from .windows import convolution_of, estimate_convolution, is_convolution, mode_of, require_form

# Of the device's time in a graph's products and convolutions. The library's calls in eager may be
# float32 whatever the flag says: those of two 16x16 patches of 224x224 are (H200, 2026-11-28).
_LEAST_SAVED = 0.05


def convolves_in_tf32(graph: Graph, target: Target, conditions: Conditions) -> bool:
    """Whether a graph's convolutions are of TF32's precision: torch's flags allow it, and as exact
    as float32 they would take noticeably more of the time of its products and convolutions. The
    patches of a transformer, say, would not.
    """
    if not conditions.tf32_convolutions:
        return False
    saved = others = 0.0
    for call in graph.nodes():
        if is_convolution(call):
            loose, exact = _convolution_us(call, target, conditions)
            saved, others = saved + exact - loose, others + loose
        elif is_product(call):
            others += _product_us(call, target, conditions)
    return saved > _LEAST_SAVED * (others + saved)


def _convolution_us(call: Node, target: Target, conditions: Conditions) -> tuple[float, float]:
    """In TF32, and as exact as float32: zeros where no kernel of ours makes it."""
    try:
        made = convolution_of(call)
        least = mode_of(call, made, target, conditions)
        require_form(made, least)
    except NoProduct:
        return 0.0, 0.0
    loose, exact = (
        estimate_convolution(call, made, (call,), target, conditions, mode)
        for mode in (least, Mode.FAITHFUL)
    )
    return min(loose.ours, loose.library), exact.ours


def _product_us(call: Node, target: Target, conditions: Conditions) -> float:
    """By the faster of the library and a kernel of ours; zero where its form is unknown."""
    try:
        product = product_of(call)
    except NoProduct:
        return 0.0
    mode = MODES[call.type.dtype]
    if mode is Mode.FAITHFUL and conditions.tf32:
        mode = Mode.TF32
    if mode not in target.product_rates:
        return 0.0
    times = estimate_product(call, product, mode, (), target, conditions.sizes)
    return min(times.fused, times.library)
