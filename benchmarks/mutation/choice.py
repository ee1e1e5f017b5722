"""Which mutants are made of which files: an order that a seed draws, spread over all classes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any

from benchmarks.mutation.rules import CLASSES, RULES, Rule
from benchmarks.mutation.text import Region, line_of, regions

# Where a text has code of which parts.
Find = Callable[[str], tuple[Region, ...]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One replacement in the emitted file of a model: `new` for what stands at `start`."""

    model: str
    rule: str
    kind: str
    part: str
    start: int
    old: str
    new: str
    line: int

    @property
    def name(self) -> str:
        """The same in every run, as long as the emitted file is."""
        return f"{self.model}: {self.rule} at {self.start}"

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.start + len(self.old) :]

    def described(self, text: str) -> dict[str, Any]:
        """What an account says of it before it is tried."""
        fields = {k: v for k, v in asdict(self).items() if k not in ("start", "old", "new")}
        return {"name": self.name, **fields, "difference": self.difference(text)}

    def difference(self, text: str) -> list[str]:
        """The lines that it changes, as they were and as they are."""
        lines = range(self.line - 1, self.line + self.old.count("\n"))
        old, new = text.split("\n"), self.applied(text).split("\n")
        changed = [n for n in lines if old[n] != new[n]]
        return [f"- {old[n].strip()}" for n in changed] + [f"+ {new[n].strip()}" for n in changed]


def mutants_of(
    model: str, text: str, rules: tuple[Rule, ...] = RULES, find: Find = regions
) -> Iterator[Mutant]:
    """Every mutant of an emitted file, by rules and then by places."""
    parts = find(text)
    for rule in rules:
        for region in parts:
            if region.part not in rule.parts:
                continue
            for match in re.finditer(rule.pattern, region.code, re.MULTILINE):
                new = rule.replaced(match)
                if new is None:
                    continue
                start = region.start + match.start()
                old = text[start : start + len(match[0])]
                line = line_of(text, start)
                yield Mutant(model, rule.name, rule.kind, region.part, start, old, new, line)


def in_order(texts: Mapping[str, str], seed: int, find: Find = regions) -> Iterator[Mutant]:
    """All mutants of all files: a class after the other, in each a model after the other.

    Of a model the rules of a class take turns, in each part of the file by themselves: a rule that
    matches a hundred times is not chosen before one that matches twice.
    """
    draw = random.Random(seed)
    waiting = {kind: _Taking() for kind in CLASSES}
    for model in sorted(texts):
        found: dict[str, dict[tuple[str, str], list[Mutant]]] = {kind: {} for kind in CLASSES}
        for mutant in mutants_of(model, texts[model], find=find):
            found[mutant.kind].setdefault((mutant.rule, mutant.part), []).append(mutant)
        for kind, by_rule in found.items():
            for some in by_rule.values():
                draw.shuffle(some)
            rules = list(by_rule.values())
            draw.shuffle(rules)
            waiting[kind].lists.append(list(_Taking(rules)))
    for taking in waiting.values():
        draw.shuffle(taking.lists)
    yield from _Taking([list(taking) for taking in waiting.values()])


class _Taking:
    """An element of each list in turn, until all are empty."""

    def __init__(self, lists: list[list[Mutant]] | None = None) -> None:
        self.lists = lists if lists is not None else []

    def __iter__(self) -> Iterator[Mutant]:
        remaining = [iter(each) for each in self.lists]
        for source in cycle(list(remaining)) if remaining else ():
            if source not in remaining:
                if not remaining:
                    return
                continue
            try:
                yield next(source)
            except StopIteration:
                remaining.remove(source)
                if not remaining:
                    return
