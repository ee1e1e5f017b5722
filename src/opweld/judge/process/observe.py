"""What the referee sees of a call by itself: changed inputs, and results in their memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TypeGuard

import torch
from torch import Tensor

from opweld.judge.load import Call
from opweld.judge.measure.blocks import compact
from opweld.judge.numerics.compare import same_bits
from opweld.judge.numerics.differentiate import LEFT
from opweld.judge.process.leaf import Place, RemoteLeaf
from opweld.judge.process.protocol import Raised
from opweld.judge.process.shared import Placed, SharedMemory
from opweld.judge.verify.aliases import are_written_over, overwrite, share_memory
from opweld.judge.verify.run import Run

# Results above are looked at for shared memory in the main check only.
_MAX_BYTES = 2**24

BESIDE = "writes beyond its memory: {count} bytes beside its inputs"
WRITES = "writes to its input {position}, which the original leaves alone"
SHARED = "returns memory of its inputs, and the original does not"
LATER = "writes to its inputs after it has returned"


class PlacedInputs:
    """The inputs of calls in the shared memory, for as long as they, or results of them, count."""

    def __init__(self, shared: SharedMemory) -> None:
        self._shared = shared
        self._by_result: dict[int, Placed] = {}
        # only where the original returns memory of its inputs these stay as long as results do
        self._may_share = False
        self._last: Placed | None = None

    def place(self, call: Call, same_memory: bool, guarded: bool = False) -> Placed:
        """The inputs of the next call; where the values go into the tensors of the last one, these
        are what is watched.
        """
        placed, last = self._shared.place(call, guarded), self._last
        if same_memory and last is not None and are_written_over(last.views, call.tensors()):
            self._last = replace(last, given=call.tensors(), left=None)
            self._by_result = {
                n: self._last if each is last else each for n, each in self._by_result.items()
            }
            self._shared.exchange(last, self._last)
            self._shared.free(placed)
            return placed
        self._last = placed
        if last is not None:
            self._free_unless_needed(last)
        return placed

    def seen(self, number: int, run: Run, like: Run | None) -> Run:
        """The run with what was seen of its inputs; `number` is that of its result.

        Raises:
            Raised: it wrote, or returned, what it must not.
        """
        placed = self._last
        assert placed is not None
        self._may_share |= like is not None and bool(like.aliases)
        if self._may_share:
            self._by_result[number] = placed
        placed.left = placed.whole.clone()
        if count := placed.num_guards_changed():
            raise Raised(f"ModelNew {BESIDE.format(count=count)}", overwrote=True)
        run = replace(run, aliases=shared_outputs(run))
        positions = changed_inputs(placed)
        if like is None:
            return with_inputs(run, placed, positions)
        for position in positions:
            if position not in like.changed_inputs:
                raise Raised(f"ModelNew {WRITES.format(position=position)}", overwrote=True)
        if not like.aliases and self._is_shared(run):
            raise Raised(f"ModelNew {SHARED}", overwrote=True)
        return with_inputs(run, placed, like.changed_inputs)

    def hold(self, call: Call) -> Placed:
        """A call that is none of ModelNew's own, such as inputs with output gradients."""
        return self._shared.place(call)

    def release(self, placed: Placed) -> None:
        """What was held for a call that came to nothing."""
        self._shared.free(placed)

    def with_grad_outputs(self, number: int, run: Run, placed: Placed, count: int) -> Run:
        """The run with the last `count` tensors that were placed, as they are now, for the output
        gradients that it says were left.
        """
        self._by_result[number] = placed
        left = placed.views[len(placed.views) - count :]
        seen = {LEFT.format(position=i): t for i, t in enumerate(left)}
        leaves = zip(run.names, run.leaves, strict=True)
        return replace(
            run, leaves=[seen[name].clone() if name in seen else leaf for name, leaf in leaves]
        )

    def overwrite(self, number: int) -> None:
        """Changes each element of an input of the last call; done twice, it is as before."""
        assert self._last is not None
        overwrite(self._last.views[number])

    def require_untouched(self) -> None:
        """Nothing was written to the inputs since the last call had returned.

        Raises:
            Raised: something was.
        """
        last = self._last
        if last is not None and last.left is not None and not torch.equal(last.whole, last.left):
            last.left = None
            raise Raised(f"ModelNew {LATER}", overwrote=True)

    def drop(self, number: int) -> None:
        """A result that nobody looks at any more."""
        placed = self._by_result.pop(number, None)
        if placed is not None and placed is not self._last:
            self._free_unless_needed(placed)

    def forget(self) -> None:
        """ModelNew is another one, which has seen no inputs."""
        last, self._last = self._last, None
        if last is not None:
            self._free_unless_needed(last)

    def _free_unless_needed(self, placed: Placed) -> None:
        if all(each is not placed for each in self._by_result.values()):
            self._shared.free(placed)

    def _is_shared(self, run: Run) -> bool:
        """Whether an output of the run is other than it was when all inputs are overwritten."""
        assert self._last is not None
        count = len(run.leaves) - len(run.changed_inputs) - len(run.changed_state)
        places = [leaf for leaf in run.leaves[:count] if _is_readable(leaf)]
        before = [leaf[()] for leaf in places]
        whole = self._last.whole
        whole.bitwise_not_()
        same = all(same_bits(leaf[()], old) for leaf, old in zip(places, before, strict=True))
        whole.bitwise_not_()
        return not same


@dataclass(frozen=True, slots=True)
class _LocatedLeaf:
    """Where an output lies, by what its process says; to lie there would change what is read."""

    leaf: RemoteLeaf
    place: Place

    @property
    def shape(self) -> torch.Size:
        return self.leaf.shape

    @property
    def device(self) -> torch.device:
        return self.leaf.device

    def numel(self) -> int:
        return self.leaf.numel()

    def stride(self) -> tuple[int, ...]:
        return self.place.strides

    def data_ptr(self) -> int:
        return self.place.address

    def element_size(self) -> int:
        return self.leaf.dtype.itemsize


def shared_outputs(run: Run) -> tuple[str, ...]:
    """Which outputs share memory with an output before them."""
    count = len(run.leaves) - len(run.changed_inputs) - len(run.changed_state)
    named = zip(run.names[:count], run.leaves[:count], strict=True)
    located = [
        (name, _LocatedLeaf(leaf, leaf.place))
        for name, leaf in named
        if isinstance(leaf, RemoteLeaf) and leaf.place is not None
    ]
    return tuple(
        f"{name} shares memory with {before}"
        for (before, left), (name, right) in itertools.combinations(located, 2)
        if share_memory(left, right)
    )


def _is_readable(leaf: object) -> TypeGuard[RemoteLeaf]:
    return isinstance(leaf, RemoteLeaf) and leaf.place is not None and leaf.nbytes <= _MAX_BYTES


def changed_inputs(placed: Placed) -> tuple[int, ...]:
    """Positions of the inputs whose bytes are not those that were placed."""
    pairs = zip(placed.views, placed.given, strict=True)
    return tuple(i for i, (view, given) in enumerate(pairs) if not _same(view, given))


def with_inputs(run: Run, placed: Placed, positions: tuple[int, ...]) -> Run:
    """The run with these inputs as they are now, in the place of those that it came with."""
    count = len(run.leaves) - len(run.changed_inputs) - len(run.changed_state)
    behind = count + len(run.changed_inputs)
    names = tuple(f"input {i} afterwards" for i in positions)
    leaves = [placed.views[i].clone() for i in positions]
    return replace(
        run,
        names=(*run.names[:count], *names, *run.names[behind:]),
        leaves=[*run.leaves[:count], *leaves, *run.leaves[behind:]],
        changed_inputs=positions,
    )


def _same(view: Tensor, given: Tensor) -> bool:
    if view.layout is not torch.strided:
        return True  # not in this memory
    return same_bits(compact(view), compact(given.detach()))
