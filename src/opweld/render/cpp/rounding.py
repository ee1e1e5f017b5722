"""Results of 16 bits that are stored: the store rounds them, once.

`half(y)` of a float is a cast in the element, rounded and widened again, and then a store, which
rounds. g++ 12 has no vector form of the processor's conversions in loops, so that the cast took as
long as all else in a softmax of half: 0.57 against 0.28 ms for 0.5M elements in rows of 4096
(AVX-512, 2026-11-21).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...ir.kernels.kernel import Arg, Element, Kernel, Let, Name, Pointwise
from ...ir.kernels.reduction import Folding, Once, Reduction, Scan, Step
from ...ir.ops import Op
from ...ir.types import DType

Ours = Pointwise | Reduction | Scan


def rounded_once(lowered: Ours) -> Ours:
    """The kernels of a group without the casts that their stores repeat."""
    if isinstance(lowered, Pointwise):
        kernels = map(_by_stores, lowered.kernels)
        return replace(lowered, contiguous=next(kernels), strided=next(kernels))
    foldings = map(_folding, lowered.foldings)
    return replace(lowered, contiguous=next(foldings), strided=next(foldings))


def _folding(folding: Folding) -> Folding:
    return replace(folding, steps=tuple(map(_step, folding.steps)))


def _step(step: Step) -> Step:
    folded = {fold.result for fold in step.walk.folds}
    walk = replace(step.walk, kernel=_by_stores(step.walk.kernel, folded))
    return Step(walk, _once(step.once) if step.once else None)


def _once(once: Once) -> Once:
    return replace(once, kernel=_by_stores(once.kernel, {v.result for v in once.values}))


def _by_stores(kernel: Kernel, kept: Collection[int] = ()) -> Kernel:
    """The results `kept` are read otherwise, too."""
    element = kernel.element
    stored = {s.result for s in kernel.stores if s.dtype is element.results[s.result][0]}
    lets = {let.name: let for let in element.body}
    results = tuple(
        (dtype, _uncast(arg, dtype, lets) if i in stored and i not in kept else arg)
        for i, (dtype, arg) in enumerate(element.results)
    )
    if results == element.results:
        return kernel
    return replace(kernel, element=_without_unused(replace(element, results=results), element))


def _uncast(arg: Arg, dtype: DType, lets: dict[str, Let]) -> Arg:
    let = lets.get(arg.text) if isinstance(arg, Name) else None
    if not let or let.op is not Op.CAST or let.dtype is not dtype or dtype is dtype.compute:
        return arg
    return let.args[0] if let.operands.compute is dtype.compute else arg


def _without_unused(element: Element, before: Element) -> Element:
    """Without the casts that were results of `before` and that nothing else reads."""
    read = {arg.text for let in element.body for arg in let.args if isinstance(arg, Name)}
    read |= {arg.text for _, arg in element.results if isinstance(arg, Name)}
    gone = {arg.text for _, arg in before.results if isinstance(arg, Name)} - read
    return replace(element, body=tuple(let for let in element.body if let.name not in gone))
