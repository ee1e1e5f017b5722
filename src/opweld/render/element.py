"""The scalar function of a group, and how kernels call it: the same in CUDA and in C++."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ..ir.kernels.kernel import Between, Buffer, Element, Gather, Kernel, Load, Test, condition_of
from .c import argument, compute_type, spelled
from .layout import comment, folded, head

_CALLED = re.compile(r"\bop::(\w+)")


def pieces_of(element: Element, language: str) -> set[str]:
    """Names of the device library's pieces that an element calls."""
    texts = [spelled(let, language) for let in element.body]
    return pieces_called("\n".join([*texts, *(argument(arg) for _, arg in element.results)]))


def place_pieces(kernels: Iterable[Kernel]) -> set[str]:
    """Names of the pieces that places told by indices need."""
    picks = [d for kernel in kernels for d in kernel.definitions if isinstance(d, Gather)]
    needed = {"place_of"} if picks else set()
    return needed | ({"from_either_end"} if any(pick.wraps for pick in picks) else set())


def pieces_called(text: str) -> set[str]:
    """Names of the device library's pieces in a text."""
    return set(_CALLED.findall(text))


def element_text(element: Element, language: str) -> str:
    """The scalar function: operands by value; one result is returned, several go by reference."""
    params = [f"{compute_type(dtype)} {name}" for name, dtype in element.params]
    single = len(element.results) == 1
    if not single:
        params += [
            f"{compute_type(dtype)}& result{i}" for i, (dtype, _) in enumerate(element.results)
        ]
    returns = compute_type(element.results[0][0]) if single else "void"
    lines = [head(f"OPWELD_FN {returns} {element.name}", params, " {")]
    for let in element.body:
        if let.comment:
            lines.append(comment(let.comment, 2, 4))
        text = spelled(let, language)
        lines.append(folded(f"  const {compute_type(let.dtype)} {let.name} = {text};"))
    for i, (_, arg) in enumerate(element.results):
        lines.append(f"  return {argument(arg)};" if single else f"  result{i} = {argument(arg)};")
    return "\n".join([*lines, "}"])


def title(kernel: Kernel, buffers: tuple[Buffer, ...]) -> str:
    """What a group is: its reason, its operands and its results with their types."""
    reason = comment(f"{kernel.name}: {kernel.comment}.", further=2)
    return f"{reason}\n{_commented(_types(buffers))}"


def short_title(kernel: Kernel, buffers: tuple[Buffer, ...]) -> str:
    """Without the reason, which the head of the file tells."""
    return _commented(f"{kernel.name}: {_types(buffers)}")


def _types(buffers: tuple[Buffer, ...]) -> str:
    read, written = (
        ", ".join(
            f"{b.name} {b.comment}".replace(" ", _NO_BREAK)
            for b in buffers
            if b.written is is_written
        )
        for is_written in (False, True)
    )
    return f"{read} -> {written}"


def _commented(text: str) -> str:
    return comment(text, further=2).replace(_NO_BREAK, " ")


# Within an operand's name and type no line breaks.
_NO_BREAK = "\N{NO-BREAK SPACE}"


def call_element(kernel: Kernel, arguments: list[str]) -> list[str]:
    """Statements that define value0, value1, ... as the results for one element."""
    element = kernel.element
    if len(element.results) == 1:
        returns = compute_type(element.results[0][0])
        return [f"const {returns} value0 = {element.name}({', '.join(arguments)});"]
    lines = [f"{compute_type(dtype)} value{i};" for i, (dtype, _) in enumerate(element.results)]
    values = [f"value{i}" for i in range(len(element.results))]
    return [*lines, f"{element.name}({', '.join([*arguments, *values])});"]


def condition_text(
    user: Load | Test | Gather,
    kernel: Kernel,
    between: Callable[[Between], str],
    joint: str = " && ",
) -> str:
    """The guard of what is read or what a test tests, as far as it has a name by the name."""
    condition = condition_of(user)
    before = kernel.definitions[: kernel.definitions.index(user)]
    tests = {d.condition: d.name for d in before if isinstance(d, Test)}
    for length in range(len(condition), 0, -1):
        if condition[:length] in tests:
            name = tests[condition[:length]]
            return joint.join([name, *map(between, condition[length:])])
    return joint.join(map(between, condition))
