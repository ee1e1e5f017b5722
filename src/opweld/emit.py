"""Sources -> str: one self-contained file with ModelNew, which needs torch and a compiler only."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .emission import piece
from .emission.backward import Backward, backward
from .emission.body import apart, parameters, reference, size_reads, together
from .emission.classes import (
    classes_text,
    imports_of,
    label_of,
    modes_of,
    refit_text,
    submodules_of,
)
from .emission.facts import facts_text, has_facts, object_expression
from .emission.fallback import teller
from .emission.gradients.by_kernels import by_kernels, more_results, span_by_kernels
from .emission.host_bound import host_bound_sizes
from .emission.libraries import kernels_text, listed, raw_string, shared_text
from .emission.replay import replay, replay_call
from .emission.spans import Span, spans_of_parts
from .emission.spelling.ops import dtype, maker_name, number, size_name
from .emission.support import (
    MARKER,
    Call,
    call_text,
    held_in,
    optional_texts,
    support_text,
)
from .ir.contract import EXAMPLE_ONLY, Needs
from .ir.graph import Graph, Record, records_of
from .ir.kernels.kernel import RowBlocks
from .ir.kernels.reduction import Lowered
from .ir.kernels.shared import fused_groups_of
from .ir.kernels.source import TRACK, Libraries
from .ir.operator import CHANNELS_LAST, Operator, Result, only_tracked, operator_of
from .ir.original import BackwardPart, Original, Part, forwards_of
from .ir.plan import Group
from .ir.types import TensorType


def emit(
    original: Original,
    parts: tuple[Part, ...],
    libraries: Libraries,
    head: str,
    needs: Needs = EXAMPLE_ONLY,
    backwards: tuple[BackwardPart, ...] = (),
) -> str:
    """The text of the emitted file.

    `head` is what its docstring says, without the quotes. `libraries` hold the kernels of all
    parts; a file without kernels is the original under the name ModelNew, unless what it calls was
    rewritten. `needs` is what was asked for: where the original runs all the same, there is nothing
    to tell. `backwards` are gradients by kernels, which are among those of `libraries`.
    """
    runs = any(part.runs for part in parts)
    fused_groups, spans = _fused_groups(parts, backwards), _spans(parts, backwards)
    imports = "\n".join(["import torch", *imports_of(parts, original)])
    sections = [f"{_docstring(head)}\n\n{imports}", _original_text(original)]
    bound = _host_bound(parts, libraries) if fused_groups else {}
    own = {suffix: [each.span for each in found] for suffix, found in spans.items()}
    class_text = classes_text(original, parts, runs, own, bound, bool(backwards))
    if runs:
        sections += [text] if (text := kernels_text(libraries)) else []
        sections += [text for fused in fused_groups for text in _references(fused)]
        sections += [text for each in _each(spans) for text in each.texts]
        sections.append(class_text)
        held = held_in(class_text, _device_type(libraries))
        held["tell"] = teller(original, forwards_of(parts), needs)
        if "_kernels.asks_for_gradients(" in class_text:
            name = original.file.removesuffix(".py")
            held["asks_for_gradients"] = f'_asks_for_gradients("{name}")'
        held |= {f"host_bound{label}": text for label, text in bound.items()}
        call = _call_text(original, parts, libraries, held, spans, backwards)
        shared = [text] if (text := shared_text(libraries)) else []
        support = [*shared, support_text(libraries.language, _differentiable(parts))]
        calls = [call, refit_text(parts)] if submodules_of(parts) else [call]
        written = "\n".join([*sections, *calls])
        support += [*optional_texts(written, _differentiable(parts)), *calls]
        sections += [f"{MARKER}\n{support[0]}", *support[1:]]
    else:
        sections.append(class_text)
    return "\n\n\n".join([*sections, _exports_text(original)]) + "\n"


def _host_bound(parts: tuple[Part, ...], libraries: Libraries) -> dict[str, str]:
    """What tells of a call that it is host-bound, by the label of its class."""
    classes = submodules_of(parts).values() or [parts]
    found: dict[str, str] = {}
    for own in classes:
        sizes = host_bound_sizes(own, _device_type(libraries))
        asks = ["asks=_asks"] if any(part.variant.contract.weights for part in own) else []
        if sizes:
            found[label_of(own)] = f"_host_bound({', '.join([*map(str, sizes), *asks])})"
    return found


@dataclass(frozen=True, slots=True)
class _FusedGroup:
    """A fused group; of row blocks `tail` is the operator of their tail. `made` are kernels of its
    backward; without `gradients` no call of it needs one.
    """

    graph: Graph
    group: Group
    operator: Operator
    tail: Operator | None
    made: BackwardPart | None = None
    gradients: bool = True

    @property
    def moves(self) -> bool:
        """Whether a view may stand for what it copies."""
        return self.group.only_moves and self.operator.reuse is None

    @property
    def has_reference(self) -> bool:
        """Without gradients only what is called all the same has one: the view beside a copy."""
        return self.gradients or self.moves

    @property
    def backward(self) -> Backward | None:
        if not self.gradients:
            return None
        if self.made is not None:
            return by_kernels(self.made, self.group, self.operator)
        return None if self.tail else backward(self.graph, self.group, self.operator)


def _fused_groups(
    parts: tuple[Part, ...], backwards: tuple[BackwardPart, ...] = ()
) -> list[_FusedGroup]:
    made = {each.operator: each for each in backwards}
    gradients = _differentiable(parts)
    return [
        _FusedGroup(
            graph, group, operator, _tail(group, lowered), made.get(operator.name), gradients
        )
        for graph, group, lowered, operator in fused_groups_of(parts)
    ]


def _differentiable(parts: tuple[Part, ...]) -> bool:
    """Whether some kernels run where gradients are asked for, which is told by a mode's guard."""
    return any(mode[0].variant.contract.differentiable for mode in modes_of(parts))


@dataclass(frozen=True, slots=True)
class _Spanned:
    """A span with the kernels that it names, and its texts."""

    graph: Graph
    operators: dict[str, Operator]
    span: Span
    texts: tuple[str, ...]
    backward: Backward | None


_Spans = dict[str, list[_Spanned]]
"""By the suffix of a variant."""


def _spans(parts: tuple[Part, ...], backwards: tuple[BackwardPart, ...]) -> _Spans:
    """What has one gradient over several kernels. What is made for a backward is of the nodes of
    the first span of a name, whose texts another one that computes the same takes over.
    """
    made = {each.operator: each for each in backwards}
    first: dict[str, _Spanned] = {}
    found = {part.variant.suffix: list[_Spanned]() for part in parts}
    for part, operators, spans in spans_of_parts(parts):
        graph = part.plan.graph
        for span in spans:
            name = span.operator.name
            if name not in first:
                given = (graph, operators, span)
                first[name] = _by_kernels(*given, made[name]) if name in made else _spanned(*given)
            own = replace(first[name], graph=graph, operators=operators, span=span)
            found[part.variant.suffix].append(own)
    return found


def _by_kernels(
    graph: Graph, operators: dict[str, Operator], span: Span, made: BackwardPart
) -> _Spanned:
    """A span whose backward is `made` of kernels."""
    ours = span_by_kernels(made, span)
    texts = [reference(graph, span.whole.as_compiled, span.operator)]
    texts.append(together(graph, span, operators, () if made.saving else made.saved))
    if made.saving:
        texts.append(together(graph, span, operators, made.saved, more_results(made, span)))
    return _Spanned(graph, operators, span, (*texts, ours.text), ours)


def _spanned(graph: Graph, operators: dict[str, Operator], span: Span) -> _Spanned:
    whole = span.whole.as_compiled
    texts = [reference(graph, whole, span.operator)]
    closed = backward(graph, whole, span.operator, span.intermediates)
    left = closed.left if closed else ()
    texts += [together(graph, span, operators, left)]
    texts += [closed.text] if closed else []
    return _Spanned(graph, operators, span, tuple(texts), closed)


def _each(spans: _Spans) -> list[_Spanned]:
    """Those of all plans, each once."""
    found = {each.span.operator.name: each for of_plan in spans.values() for each in of_plan}
    return list(found.values())


def _span_call(each: _Spanned) -> Call:
    graph, span = each.graph, each.span
    name, kernels = span.operator.name, [group.name for group in span.parts]
    bare = ", ".join(f'op("{kernel}")' for kernel in kernels)
    functions = ", ".join(f"ModelNew._opweld.{kernel}" for kernel in kernels)
    arguments = [f"[{bare}]", f"[{functions}]", f"_{name}_together", f"_{name}_reference"]
    arguments += [str(len(span.whole.outputs))]
    arguments += [each.backward.call] if each.backward else []
    several = _several(_FusedGroup(graph, span.whole.as_compiled, span.operator, None))
    return "_in_one_span", [*arguments, *several]


def _tail(group: Group, lowered: Lowered) -> Operator | None:
    if group.tail is None or not isinstance(lowered, RowBlocks):
        return None
    return operator_of(group.tail, lowered.tail)


def _docstring(head: str) -> str:
    safe = head.replace("\\", "/").replace('"""', "'''").strip('"')
    return f'"""{safe}\n"""' if "\n" in safe else f'"""{safe}"""'


def _original_text(original: Original) -> str:
    if original.source is None:
        names = f'"{original.module}", "{original.class_name}"'
        return f"{piece('imported').strip()}\n\n\n_original, _Original = _imported({names})"
    text = raw_string(original.source if original.source.endswith("\n") else original.source + "\n")
    return "\n".join(
        [
            f"# {original.file} as it was.",
            f"_ORIGINAL = {text}",
            "",
            "",
            piece("original").strip(),
            "",
            "",
            f"_original = _apart(_ORIGINAL, {original.file!r})",
            f"_Original = _original.{original.class_name}",
        ]
    )


def _references(fused: _FusedGroup) -> list[str]:
    """What a group computes, in PyTorch, and its backward where that is in closed form."""
    if fused.tail is not None:
        return [apart(fused.graph, fused.group, fused.operator, fused.tail)]
    if not fused.has_reference:
        return []
    closed = fused.backward
    text = reference(fused.graph, fused.group, fused.operator)
    return [text, closed.text] if closed else [text]


def _fake(operator: Operator) -> str:
    """What the operator returns, for torch.compile: the layouts of the host code."""
    results = [_fake_result(operator, result) for result in operator.results]
    returned = results[0] if len(results) == 1 else f"({', '.join(results)})"
    for name, _, text in (line.partition(" = ") for line in size_reads(operator)):
        returned = re.sub(rf"\b{name}\b", text, returned)
    return f"lambda {', '.join(parameters(operator))}: {returned}"


def _fake_result(operator: Operator, result: Result) -> str:
    names = [
        a.tensor(name) for a, name in zip(operator.arguments, parameters(operator), strict=False)
    ]
    if result.like is not None:
        kind = _dtype_argument(operator.arguments[result.like].type, result.type)
        return f"torch.empty_like({names[result.like]}{kind})"
    sizes = ", ".join(number(size) for size in result.type.shape)
    shape = f"({sizes},)" if result.type.rank == 1 else f"({sizes})"
    kind = _dtype_argument(operator.arguments[0].type, result.type)
    made = f"{names[0]}.new_empty({shape}{kind})"
    if not result.in_format:
        return made
    form = f"torch.channels_last if {size_name(CHANNELS_LAST)} else torch.contiguous_format"
    return f"{made}.contiguous(memory_format={form})"


def _dtype_argument(given: TensorType, wanted: TensorType) -> str:
    return "" if given.dtype is wanted.dtype else f", dtype={dtype(wanted.dtype)}"


def _device_type(libraries: Libraries) -> str:
    return "cuda" if libraries.language == "cuda" else "cpu"


def _call_text(
    original: Original,
    parts: tuple[Part, ...],
    libraries: Libraries,
    held: dict[str, str],
    spans: _Spans,
    backwards: tuple[BackwardPart, ...],
) -> str:
    held |= {
        f"holds{variant.guard_suffix}": facts_text(variant.contract, original.module)
        for variant in (mode[0].variant for mode in modes_of(parts))
        if has_facts(variant.contract)
    }
    counts = _list_lengths(parts)
    kernels = {
        fused.operator.name: _kernel_call(fused, counts.get(fused.operator.name, ()))
        for fused in _fused_groups(parts, backwards)
    }
    for made in fused_groups_of(each.part for each in backwards):
        kernels.setdefault(made[3].name, ("op", [f'"{made[3].name}"']))
    kernels |= {each.span.operator.name: _span_call(each) for each in _each(spans)}
    if any(replay(part, bool(backwards)) for part in forwards_of(parts)):
        kernels["replay"] = replay_call(_kinds(original, parts), bool(backwards))
    if any(TRACK in library.names for library in libraries.each):
        held.pop("track", None)
        kernels["track"] = "_tracking", [f'op("{TRACK}")']
    return call_text(
        _slug(original), listed(libraries), {**held, **_records(original, parts)}, kernels
    )


def _slug(original: Original) -> str:
    stem = original.file.rpartition(".")[0] or original.file
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in stem.lower())


def _records(original: Original, parts: tuple[Part, ...]) -> dict[str, str]:
    """The types of objects that the forward returns."""
    records = (r for part in parts for r in records_of(part.plan.graph.structure))
    return {maker_name(each): _maker(each, original) for each in records}


def _kinds(original: Original, parts: tuple[Part, ...]) -> list[str]:
    """The texts of these types, each once."""
    records = (r for part in parts for r in records_of(part.plan.graph.structure))
    return list(dict.fromkeys(object_expression(r.type_name, original.module) for r in records))


def _maker(record: Record, original: Original) -> str:
    kind = object_expression(record.type_name, original.module)
    return f"_of_attributes({kind})" if record.of_attributes else kind


def _list_lengths(parts: tuple[Part, ...]) -> dict[str, tuple[int, ...]]:
    """How many tensors the lists have that each kernel is given."""
    found: dict[str, set[int]] = {}
    for group in (group for part in parts for group in part.plan.groups):
        if group.tensor_list is not None:
            found.setdefault(group.name, set()).add(len(group.tensor_list.inputs))
    return {name: tuple(sorted(lengths)) for name, lengths in found.items()}


def _kernel_call(fused: _FusedGroup, counts: tuple[int, ...]) -> Call:
    """What makes the function that the forward calls of the operator `op(name)`; `counts` are the
    tensors that a list of its may have."""
    operator, name = fused.operator, fused.operator.name
    if fused.tail is not None:
        tail = f"ModelNew._opweld.{fused.tail.name}"
        return "_in_row_blocks", [f'op("{name}")', f"_{name}_apart", _fake(operator), tail]
    reference = f"_{name}_reference" if fused.has_reference else "None"
    arguments = [reference, _fake(operator)]
    lists = [i for i, a in enumerate(operator.arguments) if a.listed is not None]
    arguments += [f"{lists[0]}", f"{counts!r}"] if lists else []
    closed = fused.backward
    arguments += [closed.call] if closed else []
    arguments += _several(fused)
    if lists:
        return "_fused_over_list", [f'op("{name}")', *arguments]
    if operator.reuse is None:
        function = "_moving" if fused.moves else "_fused"
        if fused.group.convolution is not None and closed is None and fused.gradients:
            function = "_recorded"
        return function, [f'op("{name}")', *arguments]
    operators = [f'op("{name}")', f'op("{name}_into")', str(operator.reuse)]
    return "_reusing", [*operators, *arguments]


def _several(fused: _FusedGroup) -> list[str]:
    """What several results need, and one that has not the gradients of all arguments."""
    arguments = fused.operator.arguments
    floats = tuple(i for i, a in enumerate(arguments) if a.type.dtype.is_float)
    places = _reached(fused)
    if not fused.gradients or places == (floats,):
        return []
    return [f"**_several({', '.join(map(repr, places))})"]


def _reached(fused: _FusedGroup) -> tuple[tuple[int, ...] | None, ...]:
    """For each result the arguments that its gradient reaches; None for what is only tracked, which
    the reference does not compute."""
    silent = only_tracked(fused.graph, fused.group)
    pairs = zip(fused.group.outputs, fused.operator.reached, strict=True)
    return tuple(None if node.serial in silent else places for node, places in pairs)


def _exports_text(original: Original) -> str:
    """The original's own names, where nothing holds them yet."""
    if not original.exports:
        return "# The original class is _Original."
    names = ", ".join(f'"{name}"' for name in original.exports)
    listed = f"({names},)" if len(original.exports) == 1 else f"({names})"
    taken = "    globals().setdefault(_name, getattr(_original, _name))"
    return f"for _name in {listed}:\n{taken}"
