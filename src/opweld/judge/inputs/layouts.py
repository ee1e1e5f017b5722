"""How tensors lie in memory: the same values in other layouts, and inputs that share memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import torch
from torch import Tensor, nn

from opweld.judge.inputs.kinds import Kind, Manner, Own, resize
from opweld.judge.load import Call, leading_size
from opweld.judge.numerics.outputs import is_float
from opweld.judge.verify.seeds import stream

TWICE, OVERLAPPING = "the same tensor twice", "inputs that overlap"
WEIGHT = "a weight as an input"
EXPANDED = "expanded storage"
ONE_STRIDED = "one strided input"
_MAX_PADDING, _MAX_OFFSET = 9, 40
# So many inputs, which are drawn, are strided each by itself.
_MAX_BY_ITSELF = 4


def layout_kinds(own: Own, seed: int) -> tuple[Kind, ...]:
    """The same values, differently laid out in memory; expanded ones are those of one row."""
    random = Random(stream(seed, "layouts"))
    dims = {t.dim() for t in own(0).tensors()}
    changes: list[tuple[str, Callable[[Tensor], Tensor]]] = [
        ("transposed storage", _transposed),
        ("strided storage", _strided),
        ("padded rows", _padded(random.randint(1, _MAX_PADDING))),
        ("misaligned storage", _offset(1)),
        ("storage with an offset", _offset(random.randint(2, _MAX_OFFSET))),
        ("storage with an offset", _offset(16 * random.randint(1, 4))),
        *((EXPANDED, _expanded(dim)) for dim in (0, -1)),
    ]
    if max(dims) > 2:
        changes += [("permuted storage", _swapped), ("permuted storage", _permuted(random))]
    if 4 in dims:
        changes.append(("channels-last storage", _channels_last))
    of_all = (
        # rows that are equal leave a norm nothing but rounding
        Kind(name, _changer(own, change), ill_conditioned=name == EXPANDED)
        for name, change in changes
    )
    return *of_all, *_one_strided(own, random)


def _one_strided(own: Own, random: Random) -> Iterator[Kind]:
    """One of several inputs strided, the others dense: a layout that is asked of some of them."""
    able = [n for n, t in enumerate(own(0).tensors()) if _has_rows(t)]
    if len(own(0).tensors()) < 2:
        return
    for position in random.sample(able, min(len(able), _MAX_BY_ITSELF)):
        yield Kind(ONE_STRIDED, partial(_with_strided, own, position))


def _has_rows(t: Tensor) -> bool:
    return t.layout is torch.strided and t.dim() > 0 and t.shape[-1] > 1


def _with_strided(own: Own, position: int, draw: int) -> Call:
    call = own(draw)
    return _replaced(call, {position: _strided(call.tensors()[position])})


def sharing_kinds(own: Own) -> tuple[Kind, ...]:
    """Two inputs of one shape and dtype as one tensor, and in memory that partly is the same."""
    if not _alike(own(0)):
        return ()
    return Kind(TWICE, lambda draw: _twice(own(draw))), Kind(
        OVERLAPPING, lambda draw: _overlapping(own(draw))
    )


def weight_kinds(own: Own, model: nn.Module) -> tuple[Kind, ...]:
    """Rows of a parameter as an input, as many as both have; none where no shapes agree."""
    size = leading_size(own(0))
    for name, parameter in model.named_parameters():
        for t in own(0).tensors():
            if t.dim() and t.shape[0] == size and parameter.numel() and _are_rows(t, parameter):
                manner = Manner(weight=name)
                return (Kind(WEIGHT, _of_weight(own, parameter.detach()), manner=manner),)
    return ()


def _of_weight(own: Own, weight: Tensor) -> Own:
    def made(draw: int) -> Call:
        call = own(draw)
        rows = min(leading_size(call) or 0, len(weight))
        return with_weight(resize(call, rows), weight.clone())

    return made


def with_weight(call: Call, weight: Tensor) -> Call:
    """The weight's own first rows in the place of the first tensor that has rows like them."""
    first = [_are_rows(t, weight) and len(t) <= len(weight) for t in call.tensors()].index(True)
    numbers = itertools.count()
    return call.map(lambda t: weight.detach()[: len(t)] if next(numbers) == first else t)


def _are_rows(t: Tensor, weight: Tensor) -> bool:
    alike = t.dim() == weight.dim() > 0 and t.shape[1:] == weight.shape[1:]
    return alike and t.dtype == weight.dtype


def _alike(call: Call) -> tuple[int, int] | None:
    """The positions of the first two tensors of one shape and dtype."""
    given = call.tensors()
    strided = (n for n, t in enumerate(given) if t.layout is torch.strided)
    for one, other in itertools.combinations(strided, 2):
        left, right = given[one], given[other]
        if left.dim() and left.shape == right.shape and left.dtype == right.dtype and left.numel():
            return one, other
    return None


def _twice(call: Call) -> Call:
    pair = _alike(call)
    assert pair is not None
    same = call.tensors()[pair[0]].clone()
    return _replaced(call, dict.fromkeys(pair, same))


def _overlapping(call: Call) -> Call:
    """The second begins one row behind the first."""
    pair = _alike(call)
    assert pair is not None
    first, second = (call.tensors()[position] for position in pair)
    both = torch.cat([first, second[-1:]])
    return _replaced(call, {pair[0]: both[:-1], pair[1]: both[1:]})


def _replaced(call: Call, others: dict[int, Tensor]) -> Call:
    numbers = itertools.count()

    def change(t: Tensor) -> Tensor:
        other = others.get(next(numbers))
        return t.clone() if other is None else other

    return call.map(change)


def _changer(own: Own, change: Callable[[Tensor], Tensor]) -> Own:
    """A sparse tensor stays as it is."""

    def changed(t: Tensor) -> Tensor:
        return change(t) if t.layout is torch.strided else t.clone()

    return lambda draw: own(draw).map(changed)


def _transposed(t: Tensor) -> Tensor:
    if t.dim() < 2:
        return _strided(t)
    return t.transpose(-1, -2).contiguous().transpose(-1, -2)


def _strided(t: Tensor) -> Tensor:
    """Every other element of a wider tensor; what lies between is NaN, or zero for integers."""
    if not t.dim() or t.numel() == 0:
        return t.clone()
    view = _wide(t, 2 * t.shape[-1])[..., ::2]
    view.copy_(t)
    return view


def _padded(padding: int) -> Callable[[Tensor], Tensor]:
    """Rows that are dense and lie apart; what lies between is NaN, or zero for integers."""

    def change(t: Tensor) -> Tensor:
        if not t.dim() or t.numel() == 0:
            return t.clone()
        view = _wide(t, t.shape[-1] + padding)[..., : t.shape[-1]]
        view.copy_(t)
        return view

    return change


def _wide(t: Tensor, width: int) -> Tensor:
    fill = math.nan if is_float(t) else 0
    return torch.full((*t.shape[:-1], width), fill, dtype=t.dtype, device=t.device)


def _offset(count: int) -> Callable[[Tensor], Tensor]:
    """So many elements from the start of an allocation: one of them is less than any alignment."""

    def change(t: Tensor) -> Tensor:
        flat = torch.empty(t.numel() + count, dtype=t.dtype, device=t.device)
        view = flat[count:].view(t.shape)
        view.copy_(t)
        return view

    return change


def _expanded(dim: int) -> Callable[[Tensor], Tensor]:
    """The first element of a dimension in the place of all, by a stride of zero."""

    def change(t: Tensor) -> Tensor:
        if not t.dim() or t.numel() == 0:
            return t.clone()
        return t.narrow(dim, 0, 1).clone().expand_as(t)

    return change


def _swapped(t: Tensor) -> Tensor:
    """The second dimension outside of the first; rows stay dense."""
    return t.clone() if t.dim() < 3 else t.transpose(0, 1).contiguous().transpose(0, 1)


def _permuted(random: Random) -> Callable[[Tensor], Tensor]:
    """The dimensions in an order that is drawn, for all tensors of a rank alike."""
    orders = {rank: random.sample(range(rank), rank) for rank in range(3, 9)}

    def change(t: Tensor) -> Tensor:
        order = orders.get(t.dim())
        if order is None:
            return t.clone()
        back = [order.index(dim) for dim in range(t.dim())]
        return t.permute(order).contiguous().permute(back)

    return change


def _channels_last(t: Tensor) -> Tensor:
    if t.dim() != 4:
        return t.clone()
    return t.contiguous(memory_format=torch.channels_last)
