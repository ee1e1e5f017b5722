"""A failing program made small: the same fault with fewer lines, inputs, sizes and types.

Deterministic: the candidates of a round stand in a fixed order, and the first that still fails the
same way is taken. They are judged together, so that a round costs one build.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from tests.fuzz.outcome import Outcome
from tests.fuzz.program import Holding, Input, Program, Step, run_eagerly

Judge = Callable[[Mapping[str, str]], Mapping[str, Outcome]]

_NUMBER = re.compile(r"\b\d+\b")
_DTYPE = re.compile(r",? ?(?:dtype=)?torch\.(?:float16|bfloat16|float64)")
_PLAIN_SCALARS = re.compile(r"(?<![\w.])(?:\d+\.\d+|\de-\d|math\.pi)(?![\w.])")
SMALL = (1, 2, 3, 5)


def shrink(program: Program, kind: str, judge: Judge, round_size: int = 8) -> Program:
    """The smallest program found whose outcome has this `kind`."""
    # No program is tried twice: 1.0 for 2.0 and 2.0 for 1.0 could go on for ever.
    tried = {program}
    while True:
        smaller = _first_failing(program, kind, judge, round_size, tried)
        if smaller is None:
            return renamed(program)
        program = smaller


def _first_failing(
    program: Program, kind: str, judge: Judge, round_size: int, tried: set[Program]
) -> Program | None:
    fresh = [each for each in dict.fromkeys(_smaller(program)) if each not in tried]
    candidates = [each for each in fresh if _runs(each)]
    for start in range(0, len(candidates), round_size):
        chunk = {f"smaller_{i}": c for i, c in enumerate(candidates[start : start + round_size])}
        tried.update(chunk.values())
        outcomes = judge({name: each.source() for name, each in chunk.items()})
        for name, each in chunk.items():
            if outcomes[name].kind == kind:
                return each
    return None


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with less in them, the boldest first."""
    for candidate in _all(program):
        pruned = candidate.pruned()
        if pruned != program:
            yield pruned


def _all(program: Program) -> Iterator[Program]:
    yield from _fewer_results(program)
    yield from _cut(program)
    yield from _without_lines(program)
    yield from _bypassed(program)
    yield from _plainer(program)
    yield from _smaller_sizes(program)


def _fewer_results(program: Program) -> Iterator[Program]:
    for result in program.results:
        yield replace(program, results=(result,), returned="{0}")
    for left_out in program.results if len(program.results) > 2 else ():
        rest = tuple(each for each in program.results if each != left_out)
        listed = ", ".join(f"{{{index}}}" for index in range(len(rest)))
        yield replace(program, results=rest, returned=listed)


def _cut(program: Program) -> Iterator[Program]:
    """A line's result becomes an input: all that led to it goes."""
    values = _values(program)
    for step in reversed(program.steps):
        if len(step.targets) != 1 or step.targets[0] not in values:
            continue
        (target,) = step.targets
        fresh = Input(target, _random_like(values[target]))
        yield replace(
            program,
            inputs=(*program.inputs, fresh),
            steps=tuple(each for each in program.steps if each is not step),
        )


def _without_lines(program: Program) -> Iterator[Program]:
    """A line that writes in place goes; so do halves of all lines that nothing needs."""
    for step in program.steps:
        if not step.targets:
            yield replace(program, steps=tuple(s for s in program.steps if s is not step))


def _bypassed(program: Program) -> Iterator[Program]:
    """An operand in place of a line's result."""
    for step in reversed(program.steps):
        for operand in step.operands:
            if not step.targets or operand.startswith("self."):
                continue
            swap = dict.fromkeys(step.targets, operand)
            yield _swapped(program, step, swap)


def _swapped(program: Program, gone: Step, swap: Mapping[str, str]) -> Program:
    steps = tuple(
        replace(step, operands=tuple(swap.get(o, o) for o in step.operands))
        for step in program.steps
        if step is not gone
    )
    return replace(program, steps=steps, results=tuple(swap.get(r, r) for r in program.results))


def _plainer(program: Program) -> Iterator[Program]:
    """Float32, contiguous inputs, plain numbers."""
    for index, each in enumerate(program.inputs):
        for text in _plainer_inputs(each, program):
            changed = (
                *program.inputs[:index],
                Input(each.name, text),
                *program.inputs[index + 1 :],
            )
            yield replace(program, inputs=changed)
    for index, step in enumerate(program.steps):
        for number in ("1.0", "2.0"):
            text = _PLAIN_SCALARS.sub(number, step.text)
            if not _PLAIN_SCALARS.fullmatch(text) and text != step.text:
                yield replace(program, steps=_put(program.steps, index, replace(step, text=text)))


def _plainer_inputs(each: Input, program: Program) -> Iterator[str]:
    value = _values(program).get(each.name)
    if value is None:
        return
    for text in (_random_like(value), _DTYPE.sub("", each.value), _random_like(value.float())):
        if text != each.value and (len(text) < len(each.value) or "randn" in text):
            yield text


def _smaller_sizes(program: Program) -> Iterator[Program]:
    """A number becomes a smaller one wherever it stands."""
    texts = [each.value for each in program.inputs] + [each.line for each in program.holdings]
    numbers = sorted({int(n) for text in texts for n in _NUMBER.findall(text)}, reverse=True)
    for number in numbers:
        for small in (size for size in (*SMALL, number // 2, number - 1) if 0 < size < number):
            yield _resized(program, number, small)


def _resized(program: Program, number: int, small: int) -> Program:
    def change(text: str) -> str:
        return re.sub(rf"(?<![\w.{{]){number}(?![\w.}}])", str(small), text)

    return replace(
        program,
        inputs=tuple(Input(each.name, change(each.value)) for each in program.inputs),
        holdings=tuple(Holding(each.name, change(each.line)) for each in program.holdings),
        steps=tuple(replace(step, text=change(step.text)) for step in program.steps),
    )


def renamed(program: Program) -> Program:
    """With names in the order of the lines: a, b, c."""
    letters = (name for name in "abcdeghijklmnopqrstuv")
    targets = [target for step in program.steps for target in step.targets]
    if len(targets) > 20:
        return program
    names = {target: next(letters) for target in targets}
    taken = {name: name for name in names.values()}
    inputs = []
    for each, name in zip(program.inputs, "xyzw", strict=False):
        names[each.name] = name
        inputs.append(Input(name, each.value))
    if len(inputs) < len(program.inputs) or set(taken) & {each.name for each in inputs}:
        return program
    steps = tuple(
        replace(
            step,
            targets=tuple(names[t] for t in step.targets),
            operands=tuple(names.get(o, o) for o in step.operands),
        )
        for step in program.steps
    )
    results = tuple(names.get(r, r) for r in program.results)
    return replace(program, inputs=tuple(inputs), steps=steps, results=results)


def _put(steps: tuple[Step, ...], index: int, step: Step) -> tuple[Step, ...]:
    return (*steps[:index], step, *steps[index + 1 :])


def _random_like(value: torch.Tensor) -> str:
    shape = ", ".join(map(str, value.shape)) or "()"
    if value.dtype is torch.bool:
        return f"torch.rand({shape}) > 0.4"
    if not value.is_floating_point():
        return f"torch.randint(0, 10, {tuple(value.shape)}, dtype={value.dtype})"
    kind = "" if value.dtype is torch.float32 else f", dtype={value.dtype}"
    return f"torch.randn({shape}{kind})"


def _values(program: Program) -> dict[str, torch.Tensor]:
    """What each name holds in an eager run."""
    names = [each.name for each in program.inputs]
    names += [target for step in program.steps for target in step.targets]
    listed = ", ".join(f'"{name}": {name}' for name in names)
    whole = replace(program, returned=f"{{{{{listed}}}}}")
    try:
        found = run_eagerly(whole)
    except Exception:
        return {}
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def _runs(program: Program) -> bool:
    try:
        run_eagerly(program)
    except Exception:
        return False
    return True
