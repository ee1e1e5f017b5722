"""The statements of a forward, and the calls of the user's modules that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..ir.attrs import CopyAttrs
from ..ir.calls import Chain, common
from ..ir.graph import Graph, ModuleCall, Node, Tracking
from ..ir.operator import CHANNELS_LAST, Operator, image_of
from ..ir.ops import Op
from ..ir.plan import Group, in_list
from .spelling.ops import size_name


@dataclass(frozen=True, slots=True)
class Step:
    """One group of a plan, or several under one gradient, with the operator that computes it.

    `made` are the values that its statements give names, `read` those that must have one before.
    `chain` are the calls of the user's modules that all of it ran in, outermost first; None where
    nothing tells. It is `across` the boundary of other calls, whose keys these are.
    """

    group: Group
    operator: Operator | None
    made: tuple[Node, ...]
    read: tuple[Node, ...]
    chain: Chain | None
    across: frozenset[str]

    @property
    def needed(self) -> tuple[Node, ...]:
        """What it reads, and of a list of tensors each."""
        joined = self.group.tensor_list
        return self.read if joined is None else (*self.read, *in_list(joined))


@dataclass(slots=True)
class Scope:
    """The steps from `first` to `last` that ran in one call, or in the forward itself (None); the
    items are their numbers, and the calls inside.
    """

    call: ModuleCall | None
    first: int
    last: int
    items: list[int | Scope] = field(default_factory=list)

    @property
    def access(self) -> str:
        return self.call.access if self.call else "self"


@dataclass(frozen=True, slots=True)
class Flow:
    """Where the values of a forward are made and read, by the numbers of its steps. What is read at
    its end has a last reader behind all steps. `lists` has the tensors of the CATs that stand for
    lists.
    """

    steps: Sequence[Step]
    made_at: Mapping[int, int]
    last_read: Mapping[int, int]
    lists: Mapping[Node, tuple[Node, ...]]

    def read_by(self, first: int, last: int) -> list[Node]:
        """The values that these steps need and do not make, in the order in which they do: a list
        is one, but where they make some of its tensors.
        """
        made = {n.serial for step in self.steps[first : last + 1] for n in step.made}
        read: dict[Node, None] = {}
        for node in (n for step in self.steps[first : last + 1] for n in step.read):
            tensors = self.lists.get(node, ())
            read.update(dict.fromkeys(tensors if made & {n.serial for n in tensors} else (node,)))
        return [node for node in read if node.serial not in made]

    def made_by(self, first: int, last: int) -> list[Node]:
        """The values of these steps that later ones need."""
        made = [node for step in self.steps[first : last + 1] for node in step.made]
        return [node for node in made if self.last_read.get(node.serial, -1) > last]


def flow_of(steps: Sequence[Step], returned: Iterable[Node]) -> Flow:
    """`returned` are the values read after the last step."""
    made_at = {node.serial: number for number, step in enumerate(steps) for node in step.made}
    last_read = {node.serial: number for number, step in enumerate(steps) for node in step.needed}
    last_read |= {node.serial: len(steps) for node in returned}
    joined = {step.group.tensor_list for step in steps} - {None}
    return Flow(steps, made_at, last_read, {cat: in_list(cat) for cat in joined if cat})


def scopes_of(flow: Flow) -> Scope:
    """The forward as a tree of the calls that can be functions of their own.

    Such a call has its statements in one place, and a value that is read behind them; no kernel is
    across its boundary, and what it is called by is above its module. Of others the statements
    stand in the function around them, as a single one does.
    """
    chains = _settled([step.chain for step in flow.steps])
    inlined = {key for step in flow.steps for key in step.across}
    while True:
        kept = [tuple(call for call in chain if call.key not in inlined) for chain in chains]
        refused = _refused(kept, flow)
        if not refused:
            return _scope(kept, None, 0, len(kept) - 1, 0)
        inlined |= refused


def _settled(chains: Sequence[Chain | None]) -> list[Chain]:
    """What has no place of its own belongs to the calls that both its neighbours are in."""
    after: list[Chain] = []
    following: Chain = ()
    for chain in reversed(chains):
        following = following if chain is None else chain
        after.append(following)
    settled: list[Chain] = []
    for chain, later in zip(chains, reversed(after), strict=True):
        settled.append(common(settled[-1] if settled else (), later) if chain is None else chain)
    return settled


def _refused(chains: Sequence[Chain], flow: Flow) -> set[str]:
    """Keys of the calls that cannot be functions, or gain nothing by it."""
    places: dict[str, list[int]] = {}
    refused: set[str] = set()
    for number, chain in enumerate(chains):
        around = "self"
        for call in chain:
            places.setdefault(call.key, []).append(number)
            if below(call.access, around) is None:
                refused.add(call.key)
            around = call.access
    for key, numbers in places.items():
        first, last = numbers[0], numbers[-1]
        apart = last - first + 1 != len(numbers)
        if apart or first == last or not flow.made_by(first, last):
            refused.add(key)
    return refused


def _scope(
    chains: Sequence[Chain], call: ModuleCall | None, first: int, last: int, depth: int
) -> Scope:
    scope = Scope(call, first, last)
    number = first
    while number <= last:
        if len(chains[number]) == depth:
            scope.items.append(number)
            number += 1
            continue
        inner = chains[number][depth]
        end = number
        while end < last and chains[end + 1][depth : depth + 1] == (inner,):
            end += 1
        scope.items.append(_scope(chains, inner, number, end, depth + 1))
        number = end + 1
    return scope


def below(access: str, owner: str) -> str | None:
    """An access as it is from the module `owner`, None where it is not below that."""
    rest = access.removeprefix(owner)
    return f"self{rest}" if access.startswith(owner) and rest[:1] in (".", "[") else None


def tracked_in(
    flow: Flow, scope: Scope, tracked: Iterable[tuple[Tracking, tuple[Node, Node]]]
) -> dict[int, list[Tracking]] | None:
    """For each step that makes statistics what is tracked by them; None where a buffer is not below
    the module whose function has the step.
    """
    owners = dict(_owners(scope))
    found: dict[int, list[Tracking]] = {}
    for each, towards in tracked:
        places = {flow.made_at.get(node.serial) for node in towards}
        place = places.pop()
        if places or place is None:
            return None
        if any(below(buffer, owners[place]) is None for buffer in each.buffers):
            return None
        found.setdefault(place, []).append(each)
    return found


def _owners(scope: Scope) -> Iterable[tuple[int, str]]:
    for item in scope.items:
        if isinstance(item, Scope):
            yield from _owners(item)
        else:
            yield item, scope.access


def is_value(node: Node) -> bool:
    """Whether a node's text is a name or an access, not a number."""
    return node.op is not Op.CONST


def format_line(graph: Graph) -> list[str]:
    """What reads whether results are to have their channels last."""
    image = image_of(graph)
    copies = [node.attrs for node in graph.nodes() if isinstance(node.attrs, CopyAttrs)]
    if image is None or not copies:
        return []
    if all(copy.always for copy in copies):
        return [f"{size_name(CHANNELS_LAST)} = 1"]
    return [f"{size_name(CHANNELS_LAST)} = _kernels.channels_last({image.attrs.access})"]
