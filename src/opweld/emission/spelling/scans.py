"""Scans in PyTorch: as eager has them, and as users write those that it does not have."""

from __future__ import annotations

from ...ir.graph import Node
from ...ir.ops import Op

_CALLS = {
    Op.CUMSUM: ("cumsum", ""),
    Op.CUMPROD: ("cumprod", ""),
    Op.CUMMAX: ("cummax", "[0]"),
    Op.CUMMIN: ("cummin", "[0]"),
    Op.CUMMAX_PLACE: ("cummax", "[1]"),
    Op.CUMMIN_PLACE: ("cummin", "[1]"),
    Op.LOGCUMSUMEXP: ("logcumsumexp", ""),
}
SCANS = tuple(_CALLS)


def scan_text(node: Node, x: str, keyword: str) -> str:
    """The expression of a scan of `x`. In reverse it is that of the flipped elements; an exclusive
    one is that of the elements one place further on. `keyword` names the type of its results, where
    torch would take another.
    """
    function, result = _CALLS[node.op]
    a = node.attrs
    keyword = keyword if node.op in (Op.CUMSUM, Op.CUMPROD) else ""
    x = _further_on(node, x) if a.exclusive else x
    x = f"torch.flip({x}, ({a.axis},))" if a.reverse else x
    scanned = f"torch.{function}({x}, dim={a.axis}{keyword}){result}"
    return f"torch.flip({scanned}, ({a.axis},))" if a.reverse else scanned


def _further_on(node: Node, x: str) -> str:
    a, axes = node.attrs, ":, " * node.attrs.axis
    nothing = "ones" if node.op is Op.CUMPROD else "zeros"
    if a.reverse:
        parts = f"{x}[{axes}1:], torch.{nothing}_like({x}[{axes}-1:])"
    else:
        parts = f"torch.{nothing}_like({x}[{axes}:1]), {x}[{axes}:-1]"
    return f"torch.cat(({parts}), dim={a.axis})"
