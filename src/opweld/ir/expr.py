"""Integer expressions over symbols: tensor sizes, loop variables, addresses.

expr = int | Expr          an `Expr` that is constant is always returned as the `int`
Expr = sum of coefficient * monomial;  monomial = product of atoms
atom = Symbol(name) | Quotient(expr, expr) | Remainder(expr, expr)     floor division, operands >= 0
     | Picked(name, coords, extent)                                    a number read at run time

The form is canonical: expressions that are equal as polynomials of their atoms are equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name for a non-negative integer: a size (`s0`), a loop variable (`i`), a stride."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Quotient:
    """`numerator // denominator`, kept because it could not be simplified."""

    numerator: Size
    denominator: Size

    def __str__(self) -> str:
        return f"{_factor(self.numerator)} // {_factor(self.denominator)}"


@dataclass(frozen=True, slots=True)
class Remainder:
    """`numerator % denominator`, kept because it could not be simplified."""

    numerator: Size
    denominator: Size

    def __str__(self) -> str:
        return f"{_factor(self.numerator)} % {_factor(self.denominator)}"


@dataclass(frozen=True, slots=True)
class Picked:
    """A place along an axis of `extent` elements that an index holds at `coords`: 0 <= it < extent.

    It changes with the symbols in `coords`; the same name at the same coordinates is the same.
    """

    name: str
    coords: tuple[Size, ...]
    extent: Size

    @property
    def told_by(self) -> tuple[tuple[Size, ...], Size]:
        """What the number changes with, and the end of its range."""
        return self.coords, self.extent

    def __str__(self) -> str:
        return self.name


Atom = Symbol | Quotient | Remainder | Picked
Monomial = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Expr:
    """A canonical sum: `terms` is sorted, has no zero coefficient and is not a bare constant."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Size) -> Size:
        return _collect((*self.terms, *terms_of(other)))

    __radd__ = __add__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: Size) -> Size:
        return self * -1 + other

    def __mul__(self, other: Size) -> Size:
        return _collect(
            (tuple(sorted((*left, *right), key=_atom_key)), a * b)
            for left, a in self.terms
            for right, b in terms_of(other)
        )

    __rmul__ = __mul__

    def __str__(self) -> str:
        text = " + ".join(_term_text(atoms, factor) for atoms, factor in self.terms)
        return text.replace("+ -", "- ")


Size = int | Expr
Bounds = Mapping[str, Size]
"""Exclusive upper bound of a variable; a name that is absent is only known to be at least 1."""


def symbol(name: str) -> Expr:
    return Expr((((Symbol(name),), 1),))


def name_of(value: Size) -> str | None:
    """The name that a size is, if it is nothing but one."""
    terms = terms_of(value)
    if len(terms) != 1 or terms[0][1] != 1 or len(terms[0][0]) != 1:
        return None
    (atom,) = terms[0][0]
    return atom.name if isinstance(atom, Symbol) else None


def terms_of(value: Size) -> tuple[tuple[Monomial, int], ...]:
    """The terms of a sum; the constant has the empty monomial."""
    if isinstance(value, Expr):
        return value.terms
    return (((), value),) if value else ()


def product(sizes: Iterable[Size]) -> Size:
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def symbols_of(value: Size) -> frozenset[str]:
    """Names of all symbols in `value`, those inside quotients and remainders too."""
    return frozenset(
        name for monomial, _ in terms_of(value) for a in monomial for name in _names(a)
    )


def _names(atom: Atom) -> frozenset[str]:
    if isinstance(atom, Symbol):
        return frozenset((atom.name,))
    if isinstance(atom, Picked):
        return frozenset(name for c in atom.coords for name in symbols_of(c))
    return symbols_of(atom.numerator) | symbols_of(atom.denominator)


def each_term(value: Size) -> list[Size]:
    """The terms of a sum, each as an expression."""
    return [_collect((term,)) for term in terms_of(value)]


def without_symbols(term: Size, names: Container[str]) -> Size:
    """The factors of one term that name none of these symbols."""
    ((atoms, factor),) = terms_of(term)
    return _collect(((tuple(a for a in atoms if not any(n in names for n in _names(a))), factor),))


def substitute(value: Size, values: Mapping[str, Size], bounds: Bounds | None = None) -> Size:
    """`value` with symbols replaced; quotients are simplified again under `bounds`."""
    total: Size = 0
    for monomial, factor in terms_of(value):
        total = (
            total + product(_substitute_atom(a, values, bounds or {}) for a in monomial) * factor
        )
    return total


def _substitute_atom(atom: Atom, values: Mapping[str, Size], bounds: Bounds) -> Size:
    if isinstance(atom, Symbol):
        return values.get(atom.name, symbol(atom.name))
    if isinstance(atom, Picked):
        moved = tuple(substitute(c, values, bounds) for c in atom.coords)
        return picked(replace(atom, coords=moved))
    numerator = substitute(atom.numerator, values, bounds)
    denominator = substitute(atom.denominator, values, bounds)
    divide = quotient if isinstance(atom, Quotient) else remainder
    return divide(numerator, denominator, bounds)


def picked(atom: Picked) -> Expr:
    return Expr((((atom,), 1),))


def gathers_of(value: Size) -> tuple[Picked, ...]:
    """What indices hold in `value`, those inside quotients, remainders and coordinates too; what is
    needed stands before what needs it.
    """
    found: dict[Picked, None] = {}
    for atom in (atom for monomial, _ in terms_of(value) for atom in monomial):
        if isinstance(atom, Quotient | Remainder):
            found.update(
                dict.fromkeys((*gathers_of(atom.numerator), *gathers_of(atom.denominator)))
            )
        if isinstance(atom, Picked):
            found.update(dict.fromkeys(p for c in atom.coords for p in gathers_of(c)))
            found[atom] = None
    return tuple(found)


def with_gathers(value: Size, replaced: Callable[[Picked], Size]) -> Size:
    """`value` with what stands for each `Picked` in its place; quotients stay as they are."""

    def leaf(atom: Symbol | Picked) -> Size:
        return replaced(atom) if isinstance(atom, Picked) else symbol(atom.name)

    return _with_leaves(value, leaf)


def substitute_unsimplified(value: Size, values: Mapping[str, Size]) -> Size:
    """`value` with symbols replaced; quotients stay as they are. For loop variables whose bounds
    are not at hand: only a quotient whose parts are not negative may be split.
    """

    def leaf(atom: Symbol | Picked) -> Size:
        if isinstance(atom, Symbol):
            return values.get(atom.name, symbol(atom.name))
        return picked(replace(atom, coords=tuple(_with_leaves(c, leaf) for c in atom.coords)))

    return _with_leaves(value, leaf)


def _with_leaves(value: Size, leaf: Callable[[Symbol | Picked], Size]) -> Size:
    total: Size = 0
    for monomial, factor in terms_of(value):
        total = total + product(_with_leaf(atom, leaf) for atom in monomial) * factor
    return total


def _with_leaf(atom: Atom, leaf: Callable[[Symbol | Picked], Size]) -> Size:
    if isinstance(atom, Symbol | Picked):
        return leaf(atom)
    numerator, denominator = (_with_leaves(x, leaf) for x in (atom.numerator, atom.denominator))
    return Expr((((type(atom)(numerator, denominator),), 1),))


def evaluate(value: Size, values: Mapping[str, int]) -> int:
    """The number that `value` is when every symbol, and what an index holds, has one, else
    KeyError.
    """
    total = 0
    for monomial, factor in terms_of(value):
        for atom in monomial:
            factor *= _evaluate_atom(atom, values)
        total += factor
    return total


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol | Picked):
        return values[atom.name]
    numerator, denominator = evaluate(atom.numerator, values), evaluate(atom.denominator, values)
    return numerator // denominator if isinstance(atom, Quotient) else numerator % denominator


def quotient(numerator: Size, denominator: Size, bounds: Bounds) -> Size:
    """`numerator // denominator` for a non-negative numerator and a positive denominator."""
    whole, rest = _split(numerator, denominator)
    if less(rest, denominator, bounds):
        return whole
    if isinstance(rest, int) and isinstance(denominator, int):
        return whole + rest // denominator
    if whole != 0 and not at_least_zero(rest, bounds):
        whole, rest = 0, numerator
    return whole + Expr((((Quotient(rest, denominator),), 1),))


def remainder(numerator: Size, denominator: Size, bounds: Bounds) -> Size:
    """`numerator % denominator` for a non-negative numerator and a positive denominator."""
    whole, rest = _split(numerator, denominator)
    if less(rest, denominator, bounds):
        return rest
    if isinstance(rest, int) and isinstance(denominator, int):
        return rest % denominator
    if whole != 0 and not at_least_zero(rest, bounds):
        rest = numerator
    return Expr((((Remainder(rest, denominator),), 1),))


def divides(denominator: Size, value: Size) -> bool:
    return _split(value, denominator)[1] == 0


def divides_given(denominator: int, value: Size, tested: Size | None) -> bool:
    """Whether it divides `value` wherever it divides `tested`, where something is: of one symbol
    that follows, of others it is not asked.
    """
    names = symbols_of(tested) if tested is not None else frozenset[str]()
    if len(names) == 1 and tested == symbol(*names):
        value = substitute(value, {name: denominator * symbol(name) for name in names})
    return divides(denominator, value)


def is_multiple(denominator: int, value: Size, multiples: tuple[Size, ...]) -> bool:
    """Whether it divides `value` wherever it divides each of `multiples`."""
    return all(
        divides(denominator, term) or any(divides(known, term) for known in multiples)
        for term in each_term(value)
    )


def _split(value: Size, denominator: Size) -> tuple[Size, Size]:
    """(whole, rest) with value == whole * denominator + rest, term by term."""
    whole: Size = 0
    rest: Size = 0
    divisor = terms_of(denominator)
    if len(divisor) != 1:
        return (1, 0) if value == denominator else (0, value)
    (atoms, factor), *_ = divisor
    for monomial, coefficient in terms_of(value):
        left = _without(monomial, atoms)
        if left is not None and coefficient % factor == 0:
            whole = whole + _collect(((left, coefficient // factor),))
        else:
            rest = rest + _collect(((monomial, coefficient),))
    return whole, rest


def _without(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def less(value: Size, limit: Size, bounds: Bounds) -> bool:
    """Whether 0 <= value < limit is provable for all variables within `bounds`."""
    return at_least_zero(value, bounds) and at_least_zero(limit - upper(value, bounds) - 1, bounds)


def at_least_zero(value: Size, bounds: Bounds) -> bool:
    """Whether value >= 0 is provable; free symbols are at least 1, bounded ones at least 0."""
    low: Size = 0
    for monomial, coefficient in terms_of(value):
        if coefficient >= 0 and any(not _positive(a, bounds) for a in monomial):
            continue  # its least value is 0
        term = _collect(((monomial, coefficient),))
        low = low + (term if coefficient >= 0 else upper_of_term(monomial, bounds) * coefficient)
    return _shifted_coefficients_at_least_zero(low)


def _positive(atom: Atom, bounds: Bounds) -> bool:
    return isinstance(atom, Symbol) and atom.name not in bounds


def _shifted_coefficients_at_least_zero(value: Size) -> bool:
    """With every symbol written 1 + t, t >= 0, are all coefficients non-negative?"""
    shifted = substitute(value, {name: symbol(name) + 1 for name in symbols_of(value)})
    return all(coefficient >= 0 for _, coefficient in terms_of(shifted))


def upper(value: Size, bounds: Bounds) -> Size:
    """An inclusive upper bound of `value`, free of the bounded variables."""
    total: Size = 0
    for monomial, coefficient in terms_of(value):
        if coefficient > 0:
            total = total + upper_of_term(monomial, bounds) * coefficient
        elif all(_positive(a, bounds) for a in monomial):
            total = total + _collect(((monomial, coefficient),))
    return total


def upper_of_term(monomial: Monomial, bounds: Bounds) -> Size:
    return product(_upper_of_atom(atom, bounds) for atom in monomial)


def _upper_of_atom(atom: Atom, bounds: Bounds) -> Size:
    if isinstance(atom, Symbol):
        return bounds[atom.name] - 1 if atom.name in bounds else symbol(atom.name)
    if isinstance(atom, Remainder):
        return upper(atom.denominator, bounds) - 1
    if isinstance(atom, Picked):
        return atom.extent - 1
    highest = upper(atom.numerator, bounds)
    both_known = isinstance(highest, int) and isinstance(atom.denominator, int)
    return highest // atom.denominator if both_known else highest  # type: ignore[operator]


def coefficient(value: Size, name: str) -> Size | None:
    """The factor of symbol `name` where `value` is affine in it; None where it is not."""
    factor: Size = 0
    for monomial, number in terms_of(value):
        holders = [atom for atom in monomial if name in _names(atom)]
        if not holders:
            continue
        if len(holders) > 1 or not isinstance(holders[0], Symbol):
            return None
        others = tuple(atom for atom in monomial if atom is not holders[0])
        factor = factor + _collect(((others, number),))
    return factor


def _collect(terms: Iterable[tuple[Monomial, int]]) -> Size:
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    kept = sorted(((m, c) for m, c in sums.items() if c), key=_term_key)
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Expr(tuple(kept))


def _term_key(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    return (-len(term[0]), tuple(_atom_key(a) for a in term[0]))


def _atom_key(atom: Atom) -> str:
    return f"{atom}{atom.coords}" if isinstance(atom, Picked) else str(atom)


def _term_text(atoms: Monomial, factor: int) -> str:
    alone = len(atoms) == 1 and factor == 1
    parts = [str(a) if alone or isinstance(a, Symbol | Picked) else f"({a})" for a in atoms]
    if factor == -1 and parts:
        parts[0] = f"-{parts[0]}"
    elif factor != 1 or not parts:
        parts.append(str(factor)) if factor >= 0 else parts.insert(0, str(factor))
    return " * ".join(parts)


def _factor(value: Size) -> str:
    text = str(value)
    return f"({text})" if " " in text else text
