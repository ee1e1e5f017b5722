"""Other sizes than the model's own: fixed ones, and ones that are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import torch
from torch import Tensor

from opweld.judge.inputs.kinds import Kind, Own, resized
from opweld.judge.load import Call, leading_size
from opweld.judge.verify.seeds import stream

# Drawn sizes are no further above the own one, so that a check costs little more than another.
_ABOVE, _SMALL, _BLOCK = 64, 40, 32
# Different inner sizes that are changed, the first ones in the inputs.
_MAX_INNER = 4


def batch_kinds(own: Own, seed: int, num_drawn: int = 1) -> tuple[Kind, ...]:
    """Other leading sizes in all tensors that share the first one's, with rows of the own.

    `num_drawn` of each kind are drawn: even ones, odd ones and multiples of a block.
    """
    size = leading_size(own(0))
    if not size:
        return ()
    random = Random(stream(seed, "batches"))
    half = min(2 * size, size + _ABOVE) // 2
    others = []
    for _ in range(num_drawn):
        even, odd = (2 * random.randint(2, max(2, half)) + rest for rest in (0, 1))
        drawn = (even, odd, _BLOCK * random.randint(1, max(1, 2 * half // _BLOCK)))
        # one of the same kind where the own size was drawn
        steps = zip(drawn, (2, 2, _BLOCK), strict=True)
        others += [n if n != size else n + step for n, step in steps]
    sizes = dict.fromkeys(n for n in (1, 3, size + 1, 0, *others) if n != size)
    return tuple(Kind(f"batch of {n}", resized(own, n)) for n in sizes)


def inner_kinds(own: Own, seed: int) -> tuple[Kind, ...]:
    """Other sizes of all dimensions but the leading one: a small one, and one near the own.

    Dimensions of one size change together, in all tensors; an original that has some of them fixed
    refuses. A ModelNew may refuse, too.
    """
    call, random = own(0), Random(stream(seed, "inner sizes"))
    size = leading_size(call)
    found = dict.fromkeys(n for t in call.tensors() for n in _inner(t, size) if n > 1)
    kinds = []
    for old in list(found)[:_MAX_INNER]:
        near = random.randint(old // 2 + 1, old + _ABOVE)
        for new in dict.fromkeys((random.randint(1, min(old, _SMALL)), near)):
            if new != old:
                make = _with_inner(own, size, old, new)
                kinds.append(Kind(f"inner size of {new}", make, may_refuse=True))
    return tuple(kinds)


def _inner(t: Tensor, size: int | None) -> Iterator[int]:
    """The sizes of a tensor that are not the batch's."""
    yield from t.shape[1 if t.dim() and t.shape[0] == size else 0 :]


def _with_inner(own: Own, size: int | None, old: int, new: int) -> Own:
    """Every element from the own ones, repeated or cut off, so that indices stay in range."""

    def change(t: Tensor) -> Tensor:
        start = 1 if t.dim() and t.shape[0] == size else 0
        changed = t.clone()
        for dim in range(start, t.dim()):
            if t.shape[dim] == old:
                index = torch.arange(new, device=t.device) % old
                changed = changed.index_select(dim, index)
        return changed

    def make(draw: int) -> Call:
        return own(draw).map(change)

    return make
