"""Which other arguments are made from the model's own, and judgements by them."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.judge.pairs import SAME, failing, judge_pair, named
from torch import Tensor, nn

from opweld.judge.inputs.arguments import argument_kinds
from opweld.judge.load import Call

TAKES = """
class Model(nn.Module):
    def forward(self, x, ids, scale, power=2, mask=None, *, flip=False):
        y = x[ids] * scale
        if power > 4:
            raise ValueError("too large a power")
        y = y ** power if power else y
        y = y if mask is None else y.masked_fill(~mask, 0.0)
        return y.flip(0) if flip else y

def get_inputs():
    return [torch.randn(9, 33), torch.arange(9), 0.5, 3]

def get_init_inputs():
    return []
"""


class Model(nn.Module):
    def forward(
        self,
        x: Tensor,
        keep: Tensor,
        ids: Tensor,
        scale: float,
        power: int = 2,
        mask: Tensor | None = None,
        *,
        flip: bool = False,
    ) -> Tensor:
        if mask is not None and mask.dtype is not torch.bool:
            raise TypeError
        return x * scale


def own(draw: int) -> Call:
    x = torch.rand(4, 6, generator=torch.Generator().manual_seed(draw))
    return Call((x, torch.ones(6, dtype=torch.bool), torch.arange(9), 0.5, 3), {})


def accepts(call: Call) -> bool:
    try:
        Model()(*call.args, **call.kwargs)
    except TypeError:
        return False
    return call.args[-1] != 2


def test_each_argument_is_changed_given_and_left_out() -> None:
    kinds = {kind.name: kind for kind in argument_kinds(own, Model(), 5, accepts)}
    starts = [name.partition(" = ")[0] for name in kinds]
    assert starts == [
        "other booleans",
        "other integers",
        "integers to ignore",
        "argument scale",
        "argument scale",
        "argument power",
        "argument power left out",
        "argument mask",
        "argument mask",
        "argument flip",
    ]
    for name, kind in kinds.items():
        made = kind.make(0)
        assert torch.equal(made.args[0], own(0).args[0]), name
        assert kind.may_refuse is name.startswith("argument")
    assert kinds["argument power left out"].make(0).args[3:] == (0.5,)
    assert kinds["argument flip = True"].make(0).kwargs == {"flip": True}
    masks = [kind.make(0).kwargs["mask"] for name, kind in kinds.items() if "mask" in name]
    assert [tuple(mask.shape) for mask in masks] == [(4, 6), (4, 4)]
    keep = kinds["other booleans"].make(0).args[1]
    assert 0 < keep.sum() < 6
    mixed = kinds["other integers"].make(0).args[2]
    assert mixed.tolist() != list(range(9)) and set(mixed.tolist()) <= set(range(9))
    ids = kinds["integers to ignore"].make(0).args[2]
    kept = ids != -100
    assert 0 < kept.sum() < 9 and torch.equal(ids[kept], torch.arange(9)[kept])


def test_integers_to_ignore_are_given_where_the_original_takes_them() -> None:
    """A loss ignores some of its targets; an index into a table is never one of them."""

    def given(draw: int) -> Call:
        return Call((torch.rand(9, 5), torch.arange(9) % 5, torch.arange(9)), {})

    def takes(call: Call) -> bool:
        return not (call.args[2] < 0).any()

    class Loss(nn.Module):
        def forward(self, x: Tensor, target: Tensor, ids: Tensor) -> Tensor:
            return nn.functional.cross_entropy(x[ids], target)

    (kind,) = (k for k in argument_kinds(given, Loss(), 3, takes) if k.name == "integers to ignore")
    x, target, ids = kind.make(0).args
    assert (target == -100).any() and (target != -100).any() and torch.equal(ids, given(0).args[2])
    assert not any(
        k.name == "integers to ignore" for k in argument_kinds(given, Loss(), 3, lambda call: False)
    )


def test_scalars_keep_their_sign() -> None:
    class Takes(nn.Module):
        def forward(self, x: Tensor, a: int, b: float, c: int, d: float) -> Tensor:
            return x

    call = Call((torch.ones(2), 1, 0.0, -1, -2.0), {})
    kinds = argument_kinds(lambda draw: call, Takes(), 1, lambda call: True)
    for kind in kinds:
        _, a, b, c, d = kind.make(0).args
        assert a >= 1 and b >= 0 and c <= -1 and d < 0


def test_an_honest_pair_passes_and_one_may_refuse(tmp_path: Path) -> None:
    judgement = judge_pair(tmp_path, TAKES, SAME)
    assert judgement.verdict.passed, judgement.verdict.reason
    assert not named(judgement, "argument flip = True").skipped
    refuses = """
    class ModelNew(Base):
        def forward(self, x, ids, scale, power=2, mask=None, *, flip=False):
            if flip:
                raise NotImplementedError("flip")
            return super().forward(x, ids, scale, power, mask)
    """
    judgement = judge_pair(tmp_path, TAKES, refuses)
    assert judgement.verdict.passed, judgement.verdict.reason
    check = named(judgement, "argument flip = True")
    assert check.skipped and "unsupported" in check.detail
    wrong = refuses.replace('raise NotImplementedError("flip")', "pass")
    assert failing(judge_pair(tmp_path, TAKES, wrong)) == {"argument flip = True"}
    writes = refuses.replace('raise NotImplementedError("flip")', "x.zero_()")
    judgement = judge_pair(tmp_path, TAKES, writes)
    assert failing(judgement) == {"argument flip = True"}, "to write is no refusal"
    assert "writes to its input 0" in named(judgement, "argument flip = True").detail
