"""Two sides' leaves against each other and against float64: structure first, then numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from opweld.judge.numerics.compare import ErrorSums, are_close, pieces_of, same_bits
from opweld.judge.numerics.grade import grade, without_allowance, worst
from opweld.judge.numerics.noise import NoiseSums
from opweld.judge.numerics.reference import Block
from opweld.judge.process.leaf import RemoteLeaf
from opweld.judge.sparse import as_dense
from opweld.judge.values import GRADES, Check, Errors, Grade, OutputErrors
from opweld.judge.verify.run import Run

# Against a float64 run, a grade of A or B is delivered.
DELIVERED: tuple[Grade, ...] = ("A", "B")
# A float64 result that is this far off, beside its largest element, was rounded to a narrower type
# on its way: float32 rounds by 2^-24, float64 by 2^-53.
ROUNDED = 2.0**-36
# More results than single subnormal inputs lead to.
_MANY = 0.1


def mismatch(new: Run, eager: Run) -> str | None:
    """One clause on the first difference that is no matter of precision; None without one."""
    if new.nesting != eager.nesting:
        return f"returns {_nesting(new)} where the original returns {_nesting(eager)}"
    for name, left, right in zip(eager.names, new.leaves, eager.leaves, strict=True):
        if clause := _leaf_mismatch(left, right):
            return f"{name} {clause}"
    for name, left_kind, right_kind in zip(eager.names, new.kinds, eager.kinds, strict=False):
        if left_kind != right_kind:
            kinds = [kind or "plain tensor" for kind in (left_kind, right_kind)]
            return f"{name} is a {kinds[0]} instead of a {kinds[1]}"
    return None


def bit_equal(new: Run, eager: Run) -> bool:
    """Whether all leaves agree in every bit (any NaN equals any NaN)."""
    pairs = zip(new.leaves, eager.leaves, strict=True)
    return all(
        same_bits(dense(n), dense(e)) if isinstance(e, Tensor) else _same_scalar(n, e)
        for n, e in pairs
    )


def coarsened(new: Run, eager: Run) -> tuple[Run, Run]:
    """Both with leaves of the coarser dtype of the two, and of float32 where that is float64."""
    lefts, rights = list(new.leaves), list(eager.leaves)
    for position, (left, right) in enumerate(zip(lefts, rights, strict=False)):
        if not isinstance(right, Tensor) or not isinstance(left, (Tensor, RemoteLeaf)):
            continue
        kinds = {left.dtype, right.dtype}
        if left.shape == right.shape and all(dtype.is_floating_point for dtype in kinds):
            dtype = max((*kinds, torch.float32), key=lambda dtype: torch.finfo(dtype).eps)
            whole = left[()] if isinstance(left, RemoteLeaf) else left
            lefts[position], rights[position] = whole.to(dtype), right.to(dtype)
    return replace(new, leaves=lefts), replace(eager, leaves=rights)


def snapshot(run: Run) -> Run:
    """The same leaves in memory of our own: what becomes of the run does not touch them."""
    return replace(run, leaves=list(map(_copied, run.leaves)))


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, RemoteLeaf):
        return leaf[()]
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


@dataclass(slots=True)
class Comparison:
    """Figures of every leaf, over one or more draws of the same kind of inputs."""

    run: Run
    overflows: bool = False
    sums: dict[int, ErrorSums] = field(default_factory=dict)
    num_wrong: dict[int, int] = field(default_factory=dict)
    num_exact: dict[int, int] = field(default_factory=dict)
    first_wrong: dict[int, int] = field(default_factory=dict)
    noise: dict[int, NoiseSums] = field(default_factory=dict)
    trivial: frozenset[tuple[str, str]] = frozenset()
    by_rows: bool = False
    num_close: int = 0
    no_reference: str | None = None

    def add(self, new: Run, eager: Run, block: Block) -> set[int]:
        """Take in float64 leaves, of all rows or of some; the result names those of no use."""
        self.by_rows |= block.rows is not None
        useless = set()
        for position, leaf in enumerate(block.leaves):
            left, right = as_tensor(new.leaves[position]), as_tensor(eager.leaves[position])
            if block.rows is not None:
                left, right = rows_of(left, block.rows), right[block.rows]
            reference = as_tensor(leaf, torch.float64)
            dtype = judged_as(reference, right)
            if dtype is None:
                useless.add(position)
            else:
                self._add_leaf(position, left, right, reference, dtype)
        return useless

    def take_better(self, other: Comparison) -> None:
        """Of each leaf the better of two comparisons of the same leaves with several standards."""
        for position, sums in other.sums.items():
            if _place(sums) < _place(self.sums[position]):
                self.sums[position] = sums
        for position, count in other.num_wrong.items():
            self.num_wrong[position] = min(count, self.num_wrong[position])

    def pass_over(self, new: Run, eager: Run, rows: slice) -> bool:
        """Leave out those rows, which come behind those added so far, if all leaves are as close to
        eager's there as `are_close` wants; whether they are.
        """
        pairs = []
        for position in self.sums.keys() | self.num_exact.keys():
            left, right = as_tensor(new.leaves[position]), as_tensor(eager.leaves[position])
            left, right = rows_of(left, rows), right[rows]
            if not are_close(left, right):
                return False
            pairs.append((position, right.numel() * (2 if right.is_complex() else 1)))
        for position, count in pairs:
            if position in self.sums:
                self.sums[position].num_seen += count
            else:
                self.num_exact[position] += count
        self.num_close += rows.stop - rows.start
        return True

    def end_draw(self) -> None:
        """All blocks of one draw were added."""
        for sums in self.sums.values():
            sums.end_draw()

    @property
    def is_settled(self) -> bool:
        """Whether more draws could not change the verdict: it passes without the allowance for
        chance, or fails with the widest there is.
        """
        if any(self.num_wrong.values()):
            return True
        figures = [sums.figures() for p, sums in self.sums.items() if p not in self.noise]
        if all(grade(without_allowance(f)) in DELIVERED for f in figures):
            return True
        return any(grade(replace(f, freedom=0)) == "F" for f in figures)

    def add_noise(
        self,
        new: Run,
        eager: Run,
        other: Run,
        scale: float,
        positions: Iterable[int],
        num_inputs: int,
    ) -> None:
        """Compare some leaves with eager alone, as `NoiseSums` does.

        An integer that one ulp of the inputs changes is right either way.
        """
        for position in positions:
            triple = (r.leaves[position] for r in (new, eager, other))
            left, right, moved = map(as_tensor, triple)
            if not is_float(right):
                steady = right == moved if scale == 1 and moved.shape == right.shape else None
                self._add_exact(position, left, right, right, steady)
            else:
                self._add_leaf(position, left, right, right, right.dtype)
                sums = self.noise.setdefault(position, NoiseSums.of(right, num_inputs))
                for index in pieces_of(right):
                    sums.add(left[index], right[index], moved[index], scale)

    def num_float_elems(self) -> float:
        """Elements seen so far in the smallest floating-point leaf; infinity where there is none.

        An empty leaf stays empty, so it does not count.
        """
        return min((s.num_seen for s in self.sums.values() if s.num_seen), default=math.inf)

    @property
    def close(self) -> bool:
        """Whether every floating-point leaf is within assert_close's defaults of eager's, and every
        other one is right.
        """
        wrong = any(self.num_wrong.values())
        return not wrong and all(sums.figures().close for sums in self.sums.values())

    def check(self, name: str, detail: str = "") -> Check:
        """The verdict on this kind of inputs, with the figures of the worst leaf."""
        for position, count in self.num_wrong.items():
            if count:
                return self._exact_failure(name, position, count)
        graded = {p: self._grade(p) for p in self.sums}
        if not graded:
            return Check(name, True, detail or "equal", grade="A")
        lowest = worst(graded.values())
        position = max((p for p in graded if graded[p] == lowest), key=self._relative_rms)
        passed = all(g in DELIVERED or self._fits_noise(p) for p, g in graded.items())
        each = tuple(self._errors(p, g) for p, g in graded.items()) if len(graded) > 1 else ()
        check = replace(self._figures(name, position, lowest), passed=passed, outputs=each)
        return replace(check, detail=self._detail(position, lowest, passed, detail))

    def _add_leaf(
        self, position: int, new: Tensor, eager: Tensor, reference: Tensor, dtype: torch.dtype
    ) -> None:
        if not is_float(eager):
            self._add_exact(position, new, eager, reference)
            return
        sums = self.sums.setdefault(position, ErrorSums(dtype.to_real(), self.overflows))
        for index in pieces_of(new):
            three = (new[index], eager[index], reference[index])
            if eager.is_complex():
                three = tuple(torch.view_as_real(t.resolve_conj()) for t in three)
            sums.add(*three)

    def _add_exact(
        self,
        position: int,
        new: Tensor,
        eager: Tensor,
        reference: Tensor,
        steady: Tensor | None = None,
    ) -> None:
        """Integers and booleans: eager's value or the float64 run's; any where not `steady`."""
        start = self.num_exact.get(position, 0)
        for index in pieces_of(eager):
            piece = new[index]
            wrong = (piece != eager[index]) & (piece != reference[index])
            wrong = wrong if steady is None else wrong & steady[index]
            self.num_wrong[position] = self.num_wrong.get(position, 0) + int(wrong.sum())
            if position not in self.first_wrong and bool(wrong.any()):
                self.first_wrong[position] = start + int(wrong.reshape(-1).nonzero()[0])
            start += wrong.numel()
        self.num_exact[position] = start

    def _grade(self, position: int) -> Grade:
        """Without a float64 run C is the best, but for what is eager's bit for bit."""
        if position not in self.noise:
            return grade(self.sums[position].figures())
        if self.noise[position].is_exact:
            return "A"
        return "C" if self.noise[position].fits else "F"

    def _fits_noise(self, position: int) -> bool:
        return position in self.noise and self.noise[position].fits

    def _relative_rms(self, position: int) -> float:
        figures = self.sums[position].figures()
        return figures.rms / max(figures.eager_rms, figures.half_ulp_rms, 1e-300)

    def _figures(self, name: str, position: int, lowest: Grade) -> Check:
        found = self._errors(position, lowest)
        failed = lowest not in DELIVERED and not self._fits_noise(position)
        first_bad = self._index(position, self.sums[position].first_bad) if failed else None
        figures = {each.name: getattr(found, each.name) for each in fields(found)}
        return Check(name, True, "", first_bad_index=first_bad, **figures)

    def _errors(self, position: int, graded: Grade) -> OutputErrors:
        """The figures of one leaf; without errors where there was no float64 run of it."""
        sums = self.sums[position]
        figures, (p50, p99) = sums.figures(), sums.quantiles()
        ours, eager = (figures.rms, figures.max), (figures.eager_rms, figures.eager_max)
        against_eager = position in self.noise
        return OutputErrors(
            output=self.run.names[position],
            dtype=str(sums.dtype).removeprefix("torch."),
            grade=graded,
            error_vs_f64=None if against_eager else Errors(*ours),
            eager_error_vs_f64=None if against_eager else Errors(*eager),
            scale=sums.scale,
            max_ulp=sums.max_ulp,
            ulp_p50=p50,
            ulp_p99=p99,
        )

    def _index(self, position: int, flat: int | None) -> tuple[int, ...] | None:
        leaf = as_tensor(self.run.leaves[position])
        if flat is None or leaf.numel() == 0:
            return None
        flat %= leaf.numel() * (2 if leaf.is_complex() else 1)
        flat //= 2 if leaf.is_complex() else 1
        return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), leaf.shape))

    def _detail(self, position: int, lowest: Grade, passed: bool, detail: str) -> str:
        sums = self.sums[position]
        figures, name = sums.figures(), self.run.names[position]
        parts = [detail] if detail else []
        if not passed and sums.num_special_wrong:
            parts.insert(0, f"{name}: {sums.num_special_wrong} NaN or infinity wrong")
        elif not passed and position in self.noise:
            parts.insert(0, f"{name} differs from eager by up to {figures.max:.3g}")
        elif not passed:
            parts.insert(
                0,
                f"{name}: error {figures.rms:.3g} rms, {figures.max:.3g} max, eager's"
                f" {figures.eager_rms:.3g} and {figures.eager_max:.3g} (grade {lowest})",
            )
        if self.no_reference:
            parts.append(f"compared with eager: {self.no_reference}")
        if self.by_rows:
            parts.append("float64 run by blocks of rows")
        if self.num_close:
            parts.append(f"{self.num_close} rows by assert_close's tolerance beside eager alone")
        if sums.num_zero_sign:
            parts.append(f"{sums.num_zero_sign} zeros of the other sign than eager's")
        if self.trivial:
            weak = ", ".join(f"{name} for {output}" for output, name in sorted(self.trivial))
            parts.append(f"weak: {weak} would pass too")
        return "; ".join(parts) or f"grade {lowest}"

    def _exact_failure(self, name: str, position: int, count: int) -> Check:
        leaf = self.run.names[position]
        return Check(
            name,
            False,
            f"{leaf}: {count} of {self.num_exact[position]} integers or booleans differ",
            grade="F",
            output=leaf,
            first_bad_index=self._index(position, self.first_wrong.get(position)),
        )


def _place(sums: ErrorSums) -> int:
    return GRADES.index(grade(sums.figures()))


def rows_of(leaf: Any, rows: slice) -> Any:
    """Some of the leading dimension; of a leaf elsewhere without fetching it."""
    return leaf.rows(rows) if isinstance(leaf, RemoteLeaf) else leaf[rows]


def as_tensor(leaf: Any, of_float: torch.dtype = torch.float32) -> Any:
    """A leaf as a dense tensor; a Python float gets the dtype `of_float`, None and text nothing.

    A leaf in another process stays there: it has shape, dtype and device, and can be indexed.
    """
    if isinstance(leaf, RemoteLeaf):
        return leaf
    if isinstance(leaf, Tensor):
        return dense(leaf.detach())
    if isinstance(leaf, bool):
        return torch.tensor(leaf)
    if isinstance(leaf, int):
        return torch.tensor(leaf, dtype=torch.int64)
    if isinstance(leaf, float):
        return torch.tensor(leaf, dtype=of_float)
    return torch.zeros(0, dtype=torch.int64)


def dense(t: Any) -> Any:
    return t if isinstance(t, RemoteLeaf) else as_dense(t)


def is_float(t: Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def judged_as(reference: Tensor, eager: Tensor) -> torch.dtype | None:
    """The type whose digits a float64 leaf can judge; None where it is of no use.

    It must have eager's shape and be more precise. Where eager's own type is float64, it is so if a
    step on the way is not; the result is then held to the digits of float32.
    """
    if reference.shape != eager.shape or is_float(reference) != is_float(eager):
        return None
    wide = torch.promote_types(eager.dtype, torch.float64)
    if not is_float(eager) or (eager.dtype != wide and reference.dtype == wide):
        return eager.dtype
    lost = reference.dtype == wide and _lost_digits(eager, reference)
    return torch.float32 if lost else None


def _lost_digits(eager: Tensor, reference: Tensor) -> bool:
    """Whether a float64 result comes from intermediates of fewer bits, which float64 keeps."""
    finite = reference.isfinite()
    eager, reference = eager[finite], reference[finite]
    if eager.numel() == 0:
        return False
    off = (eager - reference).abs().nan_to_num(nan=math.inf)
    return float(off.max()) > ROUNDED * float(reference.abs().max())


def _leaf_mismatch(new: Any, eager: Any) -> str | None:
    if not isinstance(eager, Tensor):
        return None if _same_kind(new, eager) else f"is {_show(new)} instead of {_show(eager)}"
    if not isinstance(new, (Tensor, RemoteLeaf)):
        return f"is a {type(new).__name__} instead of a tensor"
    for what in ("shape", "dtype", "device", "layout"):
        left, right = getattr(new, what), getattr(eager, what)
        if left != right:
            show = tuple if what == "shape" else str
            return f"has {what} {show(left)} instead of {show(right)}"
    return None


def _same_kind(new: Any, eager: Any) -> bool:
    if isinstance(eager, float):
        return isinstance(new, float)
    return type(new) is type(eager) and (isinstance(eager, (bool, int)) or new == eager)


def _same_scalar(new: Any, eager: Any) -> bool:
    if isinstance(new, float) and isinstance(eager, float):
        return new == eager or (math.isnan(new) and math.isnan(eager))
    return bool(new == eager)


def _show(value: Any) -> str:
    is_tensor = isinstance(value, (Tensor, RemoteLeaf))
    return f"a tensor {tuple(value.shape)}" if is_tensor else repr(value)[:60]


def _nesting(run: Run) -> str:
    kinds = [kind for _, kind in run.nesting]
    num_leaves = kinds.count("leaf")
    if kinds[0] == "leaf":
        return "a single value"
    return f"a {kinds[0]} of {num_leaves} value{'s' if num_leaves != 1 else ''}"


def is_out_of_range(run: Run, block: Block) -> bool:
    """Whether a float64 result is of another kind than the run's, finite, infinite or NaN, or many
    vanish there: they leave the range of the run's dtype, or a step to them does.
    """
    rows = slice(None) if block.rows is None else block.rows
    pairs = ((as_tensor(run.leaves[n]), as_tensor(leaf)) for n, leaf in enumerate(block.leaves))
    return any(
        _is_out_of_range(one[rows] if one.dim() else one, exact.double())
        for one, exact in pairs
        if one.is_floating_point() and one.layout is torch.strided
    )


def _is_out_of_range(one: Tensor, exact: Tensor) -> bool:
    least = torch.finfo(one.dtype).smallest_normal
    vanishes = (one == 0) & (exact != 0) & (exact.abs() < least)
    other = (one.isfinite() != exact.isfinite()) | (one.isnan() != exact.isnan())
    return bool(other.any()) or float(vanishes.sum()) > _MANY * one.numel()
