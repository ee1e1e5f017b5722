"""Elements that are a constant outside of an operand, as one load.

A choice between what is loaded and the constant, after the load, would keep its condition until
then, and a thread has registers for seven conditions: no more loads would be under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..ir.kernels.kernel import Const, Gather, Kernel, Let, Load, Name, Test
from ..ir.ops import Op


def padded(kernel: Kernel) -> dict[str, Let]:
    """The loads that only such a choice reads, by one condition with it, and the choice: outside of
    their guard they may be its constant, and the choice is theirs.
    """
    element = kernel.element
    places = [d.index for d in kernel.definitions if isinstance(d, Gather)]
    read = Counter([*_names(element.body), *_results(kernel), *places])
    guards = {d.name: d.guard for d in kernel.definitions if isinstance(d, Load) and d.guard}
    tests = {d.name: d.condition for d in kernel.definitions if isinstance(d, Test)}
    found = dict[str, Let]()
    for let in element.body:
        if let.op is Op.WHERE and isinstance(let.args[2], Const):
            test, load = (arg.text if isinstance(arg, Name) else "" for arg in let.args[:2])
            if load in guards and read[load] == 1 and guards[load] == tests.get(test):
                found[load] = let
    return found


def known_inside(kernel: Kernel) -> set[str]:
    """The tests that nothing but these choices reads: they may be taken for true."""
    choices = list(padded(kernel).values())
    others = [let for let in kernel.element.body if let not in choices]
    tests = {arg.text for let in choices for arg in let.args[:1] if isinstance(arg, Name)}
    return tests - {*_names(others), *_results(kernel)}


def _names(lets: Iterable[Let]) -> list[str]:
    return [arg.text for let in lets for arg in let.args if isinstance(arg, Name)]


def _results(kernel: Kernel) -> list[str]:
    return [arg.text for _, arg in kernel.element.results if isinstance(arg, Name)]
