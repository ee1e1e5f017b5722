"""The statements of a forward whose calls are recorded, and made anew from C++."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.original import Part
from ..ir.plan import GroupKind
from .facts import has_facts
from .signature import handed_on
from .support import Call, wrapped

# Of fewer calls Python takes no more time than it does to have them replayed: of three or four in
# six models 13 us less in the mean, from 2 more to 39 less, on an H200 machine
# (benchmarks/results/few-calls-nvidia-h200.log). A step has more of them.
_FEWEST, _FEWEST_OF_STEPS = 5, 3
# Of statements of a forward inside its guard, where they are indented furthest.
_INDENT = 16


def replay(part: Part, steps: bool) -> list[str]:
    """What has C++ make the calls of the statements behind it, where it knows them, with `steps`
    those of gradients, too; none where a forward is not worth it, or no guard tells whether its
    model is as it was.
    """
    contract = part.variant.contract
    if not _is_worth_it(part, _FEWEST_OF_STEPS if steps else _FEWEST) or not has_facts(contract):
        return []
    tensors = ", ".join(fact.access for fact in contract.inputs if fact.type is not None)
    holds = f"_kernels.holds{part.variant.guard_suffix}"
    forward = f"lambda: _kernels.model.forward(self, {handed_on(contract.signature)})"
    arguments = ["self", holds, f"[{tensors}]", forward]
    call = wrapped("_done = _kernels.replay(", arguments, ")", _INDENT).split("\n")
    return [
        "# Of sizes that were there before C++ makes the calls below.",
        *(line.removeprefix(" " * _INDENT) for line in call),  # as all of a forward is indented
        "if _done is not None:",
        "    return _done[0]",
    ]


def replay_call(kinds: Iterable[str], steps: bool) -> Call:
    """What makes the function that the forward calls; `kinds` are the texts of the classes of
    objects that it returns. With `steps` it makes the calls of gradients, too.
    """
    operators = [f'op("opweld_{name}")' for name in ("prepare", "replay", "forget")]
    if not steps:
        return "_replaying", [*operators, *kinds]
    names = ("replay_forward", "replay_backward", "forget_left", "address")
    functions = ", ".join(f'op("opweld_{name}")' for name in names)
    return "_replaying", [*operators, *kinds, f'steps=_steps({functions}("opweld_add"))']


def _is_worth_it(part: Part, fewest: int) -> bool:
    """Whether its calls are several, and change nothing but their results and statistics."""
    changes = bool(part.plan.graph.updates) or part.variant.autocast is not None
    loops = any(group.kind is GroupKind.LOOP for group in part.plan.groups)
    several = part.fuses and len(part.plan.groups) >= fewest
    return (several or loops) and not changes
