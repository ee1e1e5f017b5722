"""Which calls with gradients are the original's at once: all where kernels are for calls without,
else those that are host-bound.

A kernel under autograd is a node of Python, with another one for its backward: 100 to 300 us of the
host (H100). Eager's operations take 10 us each, more than the device needs for few elements.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from ..ir.contract import Contract, Variant
from ..ir.expr import Size, evaluate, product
from ..ir.original import Part
from .spelling.ops import dtype

# The elements of the largest tensor of a kernel, on average, by the device: an H100, two cores.
FEW = {"cuda": 1 << 20, "cpu": 1 << 15}


def host_bound_sizes(parts: tuple[Part, ...], device_type: str) -> list[int]:
    """The most elements of each tensor that a host-bound call is given: one whose kernels read and
    write few elements on average. Empty where there is none.
    """
    found: list[list[int]] = []
    for part in (part for part in parts if part.fuses and part.variant.contract.differentiable):
        sizes = _sizes_of(part, FEW[device_type])
        if sizes is None:
            return []
        shapes = [f.type.shape for f in part.variant.contract.inputs if f.type is not None]
        found.append([evaluate(product(shape), sizes) for shape in shapes])
    return [min(most) for most in zip(*found, strict=True)]


def host_bound_test(contract: Contract, label: str) -> str:
    tensors = [fact.access for fact in contract.inputs if fact.type is not None]
    return f"_kernels.host_bound{label}({', '.join(['self', *tensors])})"


def asking_test(modes: Sequence[Variant]) -> str:
    """Whether a call asks for gradients that no kernel is made for, by the first variants of the
    modes and dtypes; empty where the training flag does not tell which calls these are. Tensors
    inside of arguments are the guard's to look at.
    """
    alone = {mode.training for mode in modes if mode.contract.forward_only}
    others = {mode.training for mode in modes if not mode.contract.forward_only}
    if not alone or alone & others:
        return ""
    asks = _asks(modes[0].contract)
    if not others:
        return asks
    return f"self.training and {asks}" if alone == {True} else f"not self.training and {asks}"


def asking_behind_guards(modes: Sequence[Variant]) -> list[str]:
    """Statements that ask the same of a call which no guard has taken, where the first tensor's
    dtype tells which mode it would have been; none where calls were asked before.
    """
    alone = [mode for mode in modes if mode.contract.forward_only]
    if not alone or asking_test(modes):
        return []
    fact = next(fact for fact in alone[0].contract.inputs if fact.type is not None)
    assert fact.type is not None
    if not fact.access.isidentifier():
        return []
    is_of_it = f"_kernels.plain({fact.access}, {dtype(fact.type.dtype)}, _kernels.devices)"
    return [f"if {is_of_it}:", f"    {_asks(alone[0].contract)}"]


def _asks(contract: Contract) -> str:
    accesses = [fact.access for fact in contract.inputs if fact.type is not None]
    given = ", ".join(["self", *filter(str.isidentifier, accesses)])
    return f"_kernels.asks_for_gradients({given})"


def is_early(contract: Contract) -> bool:
    """Whether the arguments themselves are the tensors, which can be asked before the guard."""
    return all(fact.access.isidentifier() for fact in contract.inputs if fact.type is not None)


def _sizes_of(part: Part, few: int) -> Mapping[str, int] | None:
    """The largest numbers for the symbolic sizes, in the proportions of the example, with which the
    kernels of a forward have few elements.
    """
    symbols, kernels = part.variant.contract.symbols, _elements(part)
    largest = max((fact.example for fact in symbols), default=1)

    def sizes(count: int) -> dict[str, int]:
        return {fact.name: max(1, count * fact.example // largest) for fact in symbols}

    def is_large(count: int) -> bool:
        here = sizes(count)
        total = sum(max(evaluate(size, here) for size in kernel) for kernel in kernels)
        return total > few * len(kernels)

    count = bisect.bisect_left(range(1, few * len(kernels) + 1), True, key=is_large)
    return sizes(count) if count else None


def _elements(part: Part) -> list[set[Size]]:
    """The elements of the tensors that each kernel reads and writes."""
    groups = (group for group in part.plan.groups if group.fused)
    return [{product(n.type.shape) for n in (*group.inputs, *group.outputs)} for group in groups]
