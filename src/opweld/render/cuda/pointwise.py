"""Pointwise kernels as functors of one CUDA skeleton (device/elements/pointwise.cuh).

A functor says what is computed of one element, in the user's own expressions; the skeleton does the
rest for operands of any layout.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from ...ir.kernels.kernel import Arg, Buffer, Element, Kernel, Let, Load, Name, Pointwise
from ...ir.kernels.operand import Cut, FunctorOperand
from ...ir.syntax import bare, is_reserved, without_calls
from ..c import STORAGE, argument, compute_type, load_text, spelled, store_text
from ..element import pieces_called, short_title
from ..layout import comment, folded, head

# "gelu.py:13  inner = ..." assigns to a name.
_ASSIGNED = re.compile(r"\S+\s+(?:self\.)?([A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*)\s*=[^=]")
_MAX_RANK = 8
# Of more parts a thread would hold as many values at once.
_MAX_PARTS = 16
NOTHING: Mapping[str, str] = MappingProxyType({})


def is_functor(fused: Pointwise) -> bool:
    """Whether the skeleton runs a group: operands, or parts of them, are read along axes of the
    results, and nothing but operands is."""
    kernel = fused.contiguous
    plain = fused.operands is not None and not kernel.turned and kernel.vectors == 1
    return plain and len(fused.shape) <= _MAX_RANK and len(_in_parts(fused)) <= _MAX_PARTS


def functor_pieces(fused: Pointwise) -> set[str]:
    """Names of the device library's pieces that a functor needs."""
    types = {STORAGE[buffer.dtype].removeprefix("op::") for buffer in fused.buffers}
    called = pieces_called(functor_text(fused))
    skeleton = re.match(r"\w+", _skeleton("", fused))
    assert skeleton, "its name comes first"
    return {skeleton[0], *(f"type_of_{name}" for name in types)} | called - {"Types", "Along"}


def functor_text(fused: Pointwise) -> str:
    """The functor of a group, and the C function that runs it."""
    kernel, name = fused.contiguous, f"{fused.group}_element"
    results = [buffer for buffer in kernel.buffers if buffer.written]
    every = [*_read(fused), *((buffer, tuple(range(len(fused.shape)))) for buffer in results)]
    operands = [operand(*each) for each in every]
    skeleton = _skeleton(name, fused)
    constants = f"kRank = {len(fused.shape)}, kWidth = {kernel.lanes}, kThreads = {kernel.threads}"
    parts = _parts(fused)
    given = "parts" if parts else "operands"
    lines = [
        short_title(kernel, fused.buffers),
        f"struct {name} {{",
        folded(f"  using Operands = op::Types<{', '.join(operands)}>;"),
        f"  static constexpr int {constants};",
        head("  OPWELD_FN void of", [parameter(buffer) for buffer, _ in every], " {"),
        *statements(kernel, parts=_in_parts(fused)),
        "  }",
        "};",
        f'extern "C" int {fused.group}_launch(const TensorView* operands, void* stream) {{',
        *parts,
        folded(f"  return op::{skeleton}({given}, stream, {name}::Operands());"),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _operands(fused: Pointwise) -> tuple[FunctorOperand, ...]:
    assert fused.operands is not None, "the skeleton runs it"
    return fused.operands


def _in_parts(fused: Pointwise) -> frozenset[str]:
    """The loads of buffers that are read in parts, or more than once."""
    times = Counter(each.buffer for each in _operands(fused))
    return frozenset(e.load for e in _operands(fused) if e.cuts or times[e.buffer] > 1)


def _read(fused: Pointwise) -> list[tuple[Buffer, tuple[int, ...]]]:
    """What is read and what it lies along; a part, or what is read again, by the load's name."""
    buffers, parts = fused.contiguous.buffers, _in_parts(fused)
    return [
        (replace(buffers[e.buffer], name=e.load) if e.load in parts else buffers[e.buffer], e.along)
        for e in _operands(fused)
    ]


def _parts(fused: Pointwise) -> list[str]:
    """Statements that make operands of parts, where there are some."""
    if not _in_parts(fused):
        return []
    results = [f"operands[{i}]" for i, b in enumerate(fused.contiguous.buffers) if b.written]
    lines, views = [], []
    for each, (buffer, _) in zip(_operands(fused), _read(fused), strict=True):
        tensor = f"operands[{each.buffer}]"
        views.append(each.load if each.cuts else tensor)
        if each.cuts:
            cuts = ", ".join(_cut_text(cut, each, results[0]) for cut in each.cuts)
            kind = f"op::Part<{STORAGE[buffer.dtype]}, {len(buffer.shape)}>"
            lines.append(folded(f"  const {kind} {each.load}({tensor}, {{{cuts}}});"))
    return [*lines, folded(f"  const TensorView parts[] = {{{', '.join([*views, *results])}}};")]


def _cut_text(cut: Cut, read: FunctorOperand, result: str) -> str:
    """A size that is not known before the call is that of the results."""
    known = isinstance(cut.size, int)
    size = cut.size if known else f"{result}.sizes[{read.along[cut.axis]}]"
    return f"{{{cut.axis}, {cut.begin}, {size}}}"


def list_in(operands: Iterable[tuple[Buffer, tuple[int, ...]]]) -> tuple[int, int] | None:
    """The place of the operand that is a list of tensors, and the axis along which it is joined."""
    for place, (buffer, along) in enumerate(operands):
        if buffer.listed is not None:
            return place, along[buffer.listed]
    return None


def _skeleton(name: str, fused: Pointwise) -> str:
    read = _read(fused)
    listed = list_in(read)
    if listed is not None:
        return f"pointwise_of_list<{name}, {listed[0]}, {listed[1]}>"
    transposed = any(_is_transposed(*each) for each in read)
    return f"pointwise{'_transposed' if transposed else ''}<{name}>"


def _is_transposed(buffer: Buffer, along: tuple[int, ...]) -> bool:
    """Whether the axes of an operand have another order than those of the results."""
    wide = [axis for axis, size in zip(along, buffer.shape, strict=True) if size != 1]
    return wide != sorted(wide)


def operand(buffer: Buffer, along: tuple[int, ...]) -> str:
    """The type of an operand of a functor, or of a result."""
    const = "" if buffer.written else "const "
    return f"op::Along<{', '.join([const + STORAGE[buffer.dtype], *map(str, along)])}>"


def parameter(buffer: Buffer) -> str:
    """The parameter for an element of it."""
    return f"{STORAGE[buffer.dtype]}{'&' if buffer.written else ''} {buffer.name}"


def statements(
    kernel: Kernel, given: Mapping[str, str] = NOTHING, parts: frozenset[str] = frozenset()
) -> list[str]:
    """The computation of one element: a statement for what the user named or used twice. `given`
    are the names of parameters that are no operands, by those of their definitions; `parts` are the
    loads that have a parameter of their own name.
    """
    loads = [d for d in kernel.definitions if isinstance(d, Load)]
    named = {load: load.name if load.name in parts else load.buffer for load in loads}
    texts = {load.name: load_text(load.dtype, name) for load, name in named.items()} | dict(given)
    lines = lets(kernel, texts, {*given.values(), *parts})
    return lines + _results(kernel, texts, lines)


def lets(kernel: Kernel, texts: dict[str, str], taken: set[str]) -> list[str]:
    """The statements before results; `texts` are those of names, to which these are added. None has
    a name that is `taken`, but for those that it has from the start.
    """
    lines: list[str] = []
    for line, let, name in _named(kernel.element, taken | {b.name for b in kernel.buffers}):
        text = spelled(replace(let, args=tuple(_told(arg, texts) for arg in let.args)), "cuda")
        texts[let.name] = name or _grouped(text)
        if name:
            lines += _comment(line, lines)
            lines.append(folded(f"    const {compute_type(let.dtype)} {name} = {text};"))
    return lines


def told_line(kernel: Kernel, before: list[str]) -> list[str]:
    """A comment with the user's line of the results, where no statement tells it."""
    line = _lines_of(kernel.element)[-1:]
    return _comment(line[0], before) if line else []


def value_text(arg: Arg, texts: dict[str, str]) -> str:
    """A result of an element."""
    return bare(argument(_told(arg, texts)))


def _results(kernel: Kernel, texts: dict[str, str], before: list[str]) -> list[str]:
    """What the results are; a comment tells the line where no statement has."""
    lines: list[str] = []
    for store in kernel.stores:
        _, arg = kernel.element.results[store.result]
        value = store_text(store.dtype, value_text(arg, texts))
        lines.append(folded(f"    {store.buffer} = {value};"))
    return [*told_line(kernel, before), *lines]


def _told(arg: Arg, texts: dict[str, str]) -> Arg:
    return Name(texts[arg.text]) if isinstance(arg, Name) and arg.text in texts else arg


def _grouped(text: str) -> str:
    return f"({text})" if re.search(r"[ ?]", without_calls(text)) or text[:1] in "-!~" else text


def _comment(line: str, before: list[str]) -> list[str]:
    """The user's line, where it is not the one just told."""
    text = comment(line, 4, 4) if line else ""
    told = next((each for each in reversed(before) if each.lstrip().startswith("//")), "")
    return [text] if text and text != told else []


def _lines_of(element: Element) -> list[str]:
    """The user's line of each statement."""
    found: list[str] = []
    for let in element.body:
        found.append(let.comment or (found[-1] if found else ""))
    return found


def _named(element: Element, taken: set[str]) -> Iterator[tuple[str, Let, str]]:
    """Each statement with its line and its name; without one it is a part of its only user."""
    lines = _lines_of(element)
    line_of = {let.name: line for let, line in zip(element.body, lines, strict=True)}
    users = Counter(a.text for let in element.body for a in let.args if isinstance(a, Name))
    users.update(a.text for _, a in element.results if isinstance(a, Name))
    last = {line: let.name for let, line in zip(element.body, lines, strict=True)}
    reader = {a.text: let.name for let in element.body for a in let.args if isinstance(a, Name)}
    taken = taken | {let.name for let in element.body}
    for let, line in zip(element.body, lines, strict=True):
        end = last[line] if line else ""
        within = line_of.get(reader.get(let.name, end), "") == line
        if users[let.name] <= 1 and within:
            yield line, let, ""
            continue
        assigned = _ASSIGNED.match(line)
        wish = assigned[1] if assigned and let.name == end else ""
        name = wish if wish and wish not in taken and not is_reserved(wish) else let.name
        taken.add(name)
        yield line, let, name
