"""What a target takes for operations, for what decides between forms of a graph."""

from __future__ import annotations

from opweld.ir.kernels.product import Mode
from opweld.ir.plan import Conditions
from opweld.ir.rules.costs import Costs
from opweld.target import Target

_CALL_S = 5e-6  # of the host, for a call of an operator (6.3 us: torch.relu, H200, torch 2.11)


def costs_of(target: Target, conditions: Conditions) -> Costs:
    """The speed of float32 products, of memory, and the sizes of the example."""
    rates = target.product_rates.get(Mode.FAITHFUL)
    library = target.row_blocks.flops_per_s if target.row_blocks else target.pointwise_flops_per_s
    return Costs(
        sizes=conditions.sizes,
        flops_per_s=rates.ours if rates else library,
        bytes_per_s=target.copy_bytes_per_s,
        call_s=_CALL_S,
        own_products=Mode.FAITHFUL in target.products,
    )
