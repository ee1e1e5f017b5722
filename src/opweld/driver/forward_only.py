"""Which forwards have kernels for calls without gradients alone, where the original is as quick."""

from __future__ import annotations

from dataclasses import replace

from opweld.ir.contract import Variant
from opweld.ir.expr import product
from opweld.ir.graph import Node
from opweld.ir.plan import Conditions, Group, Plan, number_at
from opweld.plan.products.windows import is_convolution, is_transposed


def with_forward_only(
    variant: Variant, plan: Plan, conditions: Conditions, training: bool
) -> Variant:
    """The variant, and whether calls with gradients take no longer by the original: its
    convolutions are kernels of ours, and products compute less than they do; or norms take
    statistics behind convolutions that are kernels of ours, or in a layout that is not PyTorch's.
    Recorded, both are PyTorch's calls again, one an operation, which take up to 2.3 times as long
    as the original's (a convolution with a tail, H200). With `training` gradients have kernels.
    """
    if training or not variant.contract.gradients:
        return variant
    ours = any(group.convolution is not None for group in plan.groups)
    calls = filter(is_convolution, plan.graph.nodes())
    if plan.graph.tracked:
        quicker = ours or any(call.attrs.channels_last for call in calls)
    else:
        quicker = ours and not _computes_more_in_products(plan, conditions)
    contract = replace(variant.contract, forward_only=quicker)
    return replace(variant, contract=contract)


def _computes_more_in_products(plan: Plan, conditions: Conditions) -> bool:
    convolutions = filter(is_convolution, plan.graph.nodes())
    of_convolutions = sum(_flops(call, conditions) for call in convolutions)
    return sum(_flops_of_products(group, conditions) for group in plan.groups) > of_convolutions


def _flops(call: Node, conditions: Conditions) -> int:
    """Two operations for each weight that meets an element: of the result, or of what a transposed
    convolution scatters.
    """
    x, weight = call.inputs[:2]
    met = (x if is_transposed(call) else call).type.num_elems
    return 2 * number_at(met * product(weight.type.shape[1:]), conditions.sizes)


def _flops_of_products(group: Group, conditions: Conditions) -> int:
    found = (group.product, group.attention)
    return sum(number_at(each.flops, conditions.sizes) for each in found if each is not None)
